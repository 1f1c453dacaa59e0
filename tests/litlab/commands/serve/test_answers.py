"""Answers are those of ``predict``, however the input was sent, from the run or from an export of it."""

import base64
import csv
import io
import json
from typing import Any

import numpy as np
import pytest

from tests.litlab.commands.serve.client import form

KINDS = ("images", "texts", "series", "rows", "targets")


def as_json(kind: str, example: Any) -> list[dict[str, Any]]:
    """The input of an example as bodies of JSON."""
    if kind == "images":
        return [{"image": base64.b64encode(example.input.read_bytes()).decode()}]
    table = list(csv.DictReader(io.StringIO(example.input.read_text())))
    if kind == "texts":
        return [{"text": row["text"]} for row in table]
    if kind == "series":
        return [{"series": [{**row, "load": float(row["load"])} for row in table]}]
    numbers = ("age", "income", "visits", "distance")
    rows = [{name: parsed(name in numbers, text) for name, text in row.items()} for row in table]
    return [{"rows": rows}]


def parsed(number: bool, text: str) -> Any:
    return None if text == "" else json.loads(text) if number else text


def bodies(kind: str, way: str, example: Any) -> list[tuple[str, bytes]]:
    """The input of an example as requests."""
    if way == "json":
        return [("application/json; charset=utf-8", json.dumps(body).encode()) for body in as_json(kind, example)]
    if way == "csv in json":
        name = "series" if kind == "series" else "rows"
        return [("application/json", json.dumps({name: example.input.read_text()}).encode())]
    if kind == "texts":
        made = [form(text=body["text"]) for body in as_json(kind, example)]
    else:
        made = [form(example.input.read_bytes())]
    return [(headers["Content-Type"], body) for body, headers in made]


def rows_of(kind: str, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers as the rows that ``predict`` writes."""
    if kind == "series":
        (answer,) = answers
        columns: dict[str, list[Any]] = {"date": answer["times"]}
        for name in answer["forecast"]:
            columns |= {
                name: answer["forecast"][name],
                f"{name}_lower": answer["lower"][name],
                f"{name}_upper": answer["upper"][name],
            }
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if kind in ("rows", "targets"):
        answers = answers[0]["rows"]
    if kind == "targets":
        return [{f"predicted_{name}": value for name, value in row["predicted"].items()} for row in answers]
    return [
        {"prediction": answer["class"], "probability": answer["probability"], **answer["probabilities"]}
        for answer in answers
    ]


@pytest.mark.parametrize("source", ["run", "export"])
@pytest.mark.parametrize(
    ("kind", "way"),
    [(kind, way) for kind in KINDS for way in ("json", "form")] + [("series", "csv in json"), ("rows", "csv in json")],
)
def test_answers_are_those_of_predict(example, answerers, kind, way, source):
    replies = answerers(kind, source).answers(bodies(kind, way, example(kind)))
    assert [reply.status for reply in replies] == [200] * len(replies), replies
    found = rows_of(kind, [json.loads(reply.body) for reply in replies])
    assert len(found) == len(example(kind).predicted) >= (1 if kind == "images" else 3)
    for row, expected in zip(found, example(kind).predicted, strict=True):
        assert row.keys() == expected.keys() - {"row", "file", "text"}
        for name, value in row.items():
            if isinstance(value, str):
                assert value == expected[name]
            else:
                assert value == pytest.approx(float(expected[name]), rel=1e-4, abs=2e-5)


def test_a_batch_is_answered_as_its_requests_are_alone(example, answerers):
    """Texts of different lengths together, with one among them that can't be read."""
    answerer = answerers("texts", "run")
    requests = bodies("texts", "json", example("texts"))
    alone = [answerer.answers([request])[0] for request in requests]
    wrong = ("application/json", b'{"text": ""}')
    together = answerer.answers([requests[0], wrong, *requests[1:]])
    assert together.pop(1).status == 422
    for one, other in zip(alone, together, strict=True):
        one, other = json.loads(one.body), json.loads(other.body)
        assert one["class"] == other["class"]
        np.testing.assert_allclose(
            list(one["probabilities"].values()), list(other["probabilities"].values()), atol=1e-5
        )
    long = json.loads(alone[3].body)
    assert (long["tokens"], long["tokens_read"]) == (90, 32)


def test_the_past_is_repeated_for_a_picture(example, answerers):
    reply = answerers("series", "run").answers(
        [("application/json", json.dumps({"series": example("series").input.read_text(), "past": True}).encode())]
    )[0]
    past = json.loads(reply.body)["past"]
    last = example("series").input.read_text().splitlines()[-1].split(",")
    assert (len(past["times"]), past["times"][-1]) == (48, last[0])
    assert (past["values"]["load"][-1], past["values"]["heat"][-1]) == (float(last[1]), float(last[2]))


def test_a_model_that_fails_on_one_request_answers_the_others(example, answerers, monkeypatch, capsys):
    """And a bug is told in the log, not to the client."""
    answerer = answerers("texts", "run")
    run = answerer.served.run

    def fails_on_long(inputs):
        if inputs["ids"].shape[1] > 31:
            raise RuntimeError("no memory")
        return run(inputs)

    monkeypatch.setattr(answerer, "served", type(answerer.served)(answerer.served.manifest, str, fails_on_long))
    replies = answerer.answers(bodies("texts", "json", example("texts")))
    assert [reply.status for reply in replies] == [200, 200, 200, 500]
    assert json.loads(replies[3].body) == {"error": "the server failed to answer this request; its log says more"}
    assert "no memory" in capsys.readouterr().err


def test_an_answer_that_is_no_number_is_refused(example, answerers, monkeypatch):
    answerer = answerers("targets", "run")
    run = answerer.served.run

    def gives_nan(inputs):
        return {
            name: np.where(np.arange(len(values))[:, None] == 1, np.nan, values) for name, values in run(inputs).items()
        }

    monkeypatch.setattr(answerer, "served", type(answerer.served)(answerer.served.manifest, str, gives_nan))
    (reply,) = answerer.answers(bodies("targets", "json", example("targets")))
    assert (reply.status, b"not a finite number" in reply.body) == (422, True)
