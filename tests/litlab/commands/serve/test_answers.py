"""Answers are those of ``predict``, however the input was sent, from the run or from an export of
it.
"""

import base64
import io
import json
import shutil
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from litlab.commands.serve.app import WEB
from litlab.commands.serve.batcher import Batcher
from litlab.commands.serve.worker import warm_up
from litlab.data import TabularData
from litlab.data.series.serving import SeriesServing
from litlab.data.tables.serving import TabularServing
from litlab.errors import UserError


def list_requests(kind, content):
    """The ways to send an input: as a file in a form, and in JSON."""
    if kind == "texts":
        content = content.rpartition(b",")[2]
    yield {"files": {"file": content}}
    if kind == "images":
        yield {"json": {"image": base64.b64encode(content).decode()}}
    elif kind == "texts":
        yield {"json": {"text": content.decode()}}
    else:
        rows = json.loads(pd.read_csv(io.BytesIO(content)).to_json(orient="records"))
        field = "series" if kind == "series" else "rows"
        yield from ({"json": {field: value}} for value in (content.decode(), rows))


def lay_out(kind, answer):
    """An answer as the table that ``predict`` writes."""
    if kind == "series":
        columns = {"date": answer["times"], **answer["forecast"]}
        for end in ("lower", "upper"):
            columns |= {f"{name}_{end}": values for name, values in answer[end].items()}
        return pd.DataFrame(columns)
    if kind == "rows":
        return pd.DataFrame([row["predicted"] for row in answer["rows"]]).add_prefix("predicted_")
    best = {"prediction": answer["class"], "probability": answer["probability"]}
    return pd.DataFrame([best | answer["probabilities"]])


@pytest.mark.parametrize("served", ["images", "texts", "series", "rows", "exported"])
def test_answers_are_those_of_predict(example, client, served):
    kind = "texts" if served == "exported" else served
    expected = example(kind).predicted.drop(columns=["row", "file", "text"], errors="ignore")
    for request in list_requests(kind, example(kind).content):
        response = client(served).post("/predict", **request)
        assert response.status_code == 200, response.text
        answer = response.json()
        shown = lay_out(kind, answer)
        assert_frame_equal(shown, expected, check_like=True, rtol=1e-4, atol=2e-5)
        if kind == "series":
            last = example("series").content.decode().splitlines()[-1].split(",")
            assert (len(answer["past"]["times"]), answer["past"]["times"][-1]) == (48, last[0])
            assert answer["past"]["values"]["heat"][-1] == float(last[2])
        if kind == "texts":
            assert (answer["tokens"], answer["tokens_read"]) == (90, 32)


def test_a_batch_is_answered_as_its_requests_are_alone(models, monkeypatch):
    """Texts of different lengths together, and one that can't be read."""
    model = models("texts")
    requests = [{"text": text} for text in ("sun", "word1 rain word2", " ", "snow " * 40)]
    alone = [model.answer([request])[0] for request in requests]
    together = model.answer(requests)
    assert "it is empty" in str(together[2])
    for number in (0, 1, 3):
        probabilities = alone[number]["probabilities"]
        assert together[number]["probabilities"] == pytest.approx(probabilities, abs=1e-5)

    run = model.run
    monkeypatch.setattr(model, "run", lambda inputs: [output[:1] for output in run(inputs)])
    with pytest.raises(RuntimeError, match="no answer for each of 2 inputs"):
        model.answer(requests[:2])


def test_an_example_is_answered(models, monkeypatch):
    for kind in ("images", "texts", "series", "rows", "exported"):
        model = models(kind)
        warm_up(model, Batcher(model.answer, 1), 60)
    monkeypatch.setattr(model, "run", lambda inputs: time.sleep(1))
    with pytest.raises(UserError, match=r"no answer within 0\.1 seconds"):
        warm_up(model, Batcher(model.answer, 1), 0.1)


@pytest.mark.parametrize("freq", ["15min", "B", "W-WED", "ME", "QS-OCT"])
def test_examples_of_series_have_any_step(models, freq):
    facts = models("series").manifest["facts"]
    for rows in (1, 2, 100):
        serving = SeriesServing.load({**facts, "freq": freq, "context_length": rows}, {})
        assert len(serving.read(serving.sample_request()).inputs[0][0]) == rows


@pytest.mark.parametrize(
    ("form", "times", "targets"),
    [
        ({"time_format": "%d/%m/%Y"}, "%d/%m/%Y", "plan"),
        ({"decimal": ",", "thousands": "."}, "%Y-%m-%dT%H:%M+02:00", ["yes", "no"]),
    ],
)
def test_examples_of_tables_are_read(form, times, targets):
    """With dates, as the training file writes them; also after the facts were a file."""
    days = pd.date_range("2024-01-01", periods=200, freq="37h").strftime(times)
    columns = {
        "day": days, "size": np.linspace(700, 1300, 200), "city": [*"xy"] * 100,
        "plan": [*"abcb"] * 50, "yes": [0, 1] * 100, "no": [0, 0, 1, 1] * 50,
    }  # fmt: skip
    task = "labels" if isinstance(targets, list) else None
    data = TabularData(path=pd.DataFrame(columns), target=targets, task=task, dates=["day"], **form)
    data.setup()
    serving = TabularServing.load(json.loads(json.dumps(data.serving().facts())), {})
    [sent] = serving.sample_request()
    assert sent.keys() == columns.keys() - {*data.targets}
    numbers, categories = serving.read([sent]).inputs
    assert np.isfinite(numbers).all()
    assert (categories > 0).all()
    outputs = np.ones([1, *serving.outputs[0].shape[1:]])
    answer = serving.answer({"first": outputs}, {})
    assert answer == {"rows": [data.metadata.target.answer(outputs[0])]}


ANSWERS = {
    '"images", {"class": "cat", "probability": 0.75, "probabilities": {"cat": 0.75, "dog": 0.25}}':
        "cat (75.0 %) cat 75.0 % dog 25.0 %",
    '"images", {"labels": ["sea", "sky"], "probabilities": {"sea": 0.75, "sun": 0.25, "sky": 0.5}}':
        "sea (75.0 %), sky (50.0 %) sea 75.0 % sun 25.0 % sky 50.0 %",
    '"texts", {"labels": [], "probabilities": {"sea": 0.25}, "tokens": 9, "tokens_read": 8}':
        "none of the labels sea 25.0 % The model has read the first 8 of 9 tokens.",
    '"texts", {"predicted": {"stars": 3.25}, "tokens": 9, "tokens_read": 9}': "stars: 3.25",
    '"images", {"predicted": {"x": 1, "y": 2.5}}': "x 1 y 2.5",
    '"rows", {"rows": [{"labels": ["sea"], "probabilities": {"sea": 0.75, "sun": 0.25}}]}':
        "sea (75.0 %) sea 75.0 % sun 25.0 %",
    '"rows", {"rows": [{"labels": ["sea"], "probabilities": {"sea": 1}}, {"labels": []}]}':
        "row labels 1 sea (100.0 %) 2 none of the labels",
    '"rows", {"rows": [{"predicted": {"x": 1}}, {"predicted": {"x": 2}}]}': "row x 1 1 2 2",
    '"files", {"mask": "abc"}': '{ "mask": "abc" }',
}  # fmt: skip
DOM = """
class Node {
  constructor() { this.style = {}; this.parts = []; }
  setAttribute() {}
  append(...parts) { this.parts.push(...parts); }
  text() {
    return this.parts.flat().map((part) => part.text ? part.text() : String(part)).join(" ");
  }
}
globalThis.innerWidth = 500;
globalThis.document = { createElement: () => new Node() };
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no JavaScript here")
def test_the_page_shows_what_was_predicted():
    """Whatever the kind of data: classes, labels of which several are true, numbers."""
    calls = [
        f"console.log(JSON.stringify(new Node().text.call({{parts: drawn({one})}})));"
        for one in ANSWERS
    ]
    script = "\n".join([DOM, (WEB / "draw.js").read_text(), *calls])
    done = subprocess.run(["node", "-"], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = [" ".join(json.loads(line).split()) for line in done.stdout.splitlines()]
    assert shown == list(ANSWERS.values())


def test_an_answer_that_is_no_number_is_refused(example, models, client, monkeypatch):
    monkeypatch.setattr(
        models("rows"), "run", lambda inputs: [np.full((len(inputs[0]), 1), np.nan)]
    )
    response = client("rows").post("/predict", files={"file": example("rows").content})
    assert (response.status_code, "not a finite number" in response.text) == (422, True)
