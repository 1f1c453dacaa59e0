"""Answers are those of ``predict``, however the input was sent, from the run or from an export of it."""

import base64
import csv
import io
import json
from typing import Any

import numpy as np
import pytest

EXPORTS = {"images": "onnx", "texts": "onnx", "series": "pt2", "rows": "pt2", "targets": "pt2"}
NUMBERS = ("age", "income", "visits", "distance", "load")


def send(client: Any, kind: str, way: str, example: Any) -> list[dict[str, Any]]:
    """The answers to the input of an example."""
    field = {"images": "image", "texts": "text", "series": "series"}.get(kind, "rows")
    content = example.input.read_bytes()
    if kind == "images":
        values = [base64.b64encode(content).decode()]
    elif way == "csv in json":
        values = [content.decode()]
    else:
        table = list(csv.DictReader(io.StringIO(content.decode())))
        rows = [{name: json.loads(text or "null") if name in NUMBERS else text or None for name, text in row.items()}
                for row in table]  # fmt: skip
        values = [row["text"] for row in rows] if kind == "texts" else [rows]
    if way != "form":
        responses = [client.post("/predict", json={field: value}) for value in values]
    else:
        parts = [{field: (None, value)} for value in values] if kind == "texts" else [{"file": content}]
        responses = [client.post("/predict", files=part) for part in parts]
    assert {response.status_code for response in responses} == {200}, responses[0].text
    return [response.json() for response in responses]


def lay_out(kind: str, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers as the rows that ``predict`` writes."""
    if kind == "series":
        columns = {"date": answers[0]["times"], **answers[0]["forecast"]}
        for end in ("lower", "upper"):
            columns |= {f"{name}_{end}": values for name, values in answers[0][end].items()}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    rows = answers[0]["rows"] if kind in ("rows", "targets") else answers
    if kind == "targets":
        return [{f"predicted_{name}": value for name, value in row["predicted"].items()} for row in rows]
    return [{"prediction": row["class"], "probability": row["probability"], **row["probabilities"]} for row in rows]


WAYS = [(kind, way) for kind in EXPORTS for way in ("json", "form")]


@pytest.mark.parametrize("source", ["run", "export"])
@pytest.mark.parametrize(("kind", "way"), [*WAYS, ("series", "csv in json"), ("rows", "csv in json")])
def test_answers_are_those_of_predict(example, client, kind, way, source):
    answers = send(client(kind, "run" if source == "run" else EXPORTS[kind]), kind, way, example(kind))
    rows = lay_out(kind, answers)
    assert len(rows) == len(example(kind).predicted) >= (1 if kind == "images" else 3)
    for row, expected in zip(rows, example(kind).predicted, strict=True):
        assert row.keys() == expected.keys() - {"row", "file", "text"}
        for name, value in row.items():
            if isinstance(value, str):
                assert value == expected[name]
            else:
                assert value == pytest.approx(float(expected[name]), rel=1e-4, abs=2e-5)
    if kind == "series":
        last = example("series").input.read_text().splitlines()[-1].split(",")
        assert (len(answers[0]["past"]["times"]), answers[0]["past"]["times"][-1]) == (48, last[0])
        assert answers[0]["past"]["values"]["heat"][-1] == float(last[2])
    if kind == "texts":
        assert (answers[3]["tokens"], answers[3]["tokens_read"]) == (90, 32)


def test_a_batch_is_answered_as_its_requests_are_alone(example, models, monkeypatch):
    """Texts of different lengths together, one that can't be read, and one that the model fails on."""
    model = models("texts", "run")
    requests = [{"text": row["text"]} for row in csv.DictReader(io.StringIO(example("texts").input.read_text()))]
    alone = [model.answer([request])[0] for request in requests]
    together = model.answer([requests[0], {"text": " "}, *requests[1:]])
    assert "it is empty" in str(together.pop(1))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(*(list(answer["probabilities"].values()) for answer in (one, other)), atol=1e-5)

    run = model.run

    def fail_on_long(inputs):
        if inputs[0].shape[1] > 31:
            raise RuntimeError("no memory")
        return run(inputs)

    monkeypatch.setattr(model, "run", fail_on_long)
    *others, failed = model.answer(requests)
    assert [answer["class"] for answer in others] == [answer["class"] for answer in alone[:3]]
    assert isinstance(failed, RuntimeError)


def test_an_answer_that_is_no_number_is_refused(example, models, client, monkeypatch):
    monkeypatch.setattr(models("targets", "run"), "run", lambda inputs: [np.full((len(inputs[0]), 1), np.nan)])
    response = client("targets").post("/predict", files={"file": example("targets").input.read_bytes()})
    assert (response.status_code, "not a finite number" in response.text) == (422, True)
