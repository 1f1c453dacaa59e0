"""What is predicted, from a file to predictions: numbers, classes, several labels."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.litlab.conftest import CONFIGS
from tests.litlab.data.tables.conftest import make_houses

RUN = Path("lightning_logs/table/version_0")
NAMES = ["large", "old", "here"]


@pytest.fixture
def frame() -> pd.DataFrame:
    """Houses, three labels that follow from their columns, and a number far from zero."""
    houses = make_houses(600)
    size, age, city = houses["size"], houses["age"], houses["city"]
    labels = {"large": size > 110, "old": age > 45, "here": city == "Bonn"}
    return houses.assign(**labels, far=1e9 + size / 5, key=[f"k{n:03}" for n in range(600)])


@pytest.fixture
def fit(run, frame):
    """Fits a table of the frame, and predicts it; returns its metrics and predictions."""

    def fit_it(target: str, columns: list[str], *flags: str):
        frame[["size", "age", "city", *columns, "key"]].to_csv("rows.csv", index=False)
        data = ["--data.dataset=csv", "--data.path=rows.csv", "--data.id_column=key"]
        more = "--trainer.max_epochs=8 --data.batch_size=32 --trainer.callbacks=Baselines".split()
        usual = ["--model.optimizer.lr=0.05", f"--data.target={target}"]
        run("fit --config", CONFIGS / "table.yaml", *data, *more, *flags, *usual).check()
        run("predict --run=table --input=rows.csv --output=out.csv").check()
        rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
        assert [row["key"] for row in rows] == frame["key"].tolist()
        return json.loads((RUN / "metrics.json").read_text())["test"], rows

    return fit_it


def test_several_labels_of_a_sample(fit, frame):
    """In columns of their own; images/test_datamodule.py has them in one."""
    labels = ["--model=MultilabelClassifier", "--data.task=labels"]
    test, rows = fit("[large,old,here]", NAMES, *labels)
    assert test["test/f1"] > 0.85
    assert {f"test/f1_{name}" for name in NAMES} < test.keys()
    hits = [np.equal([row[f"label_{name}"] == "1" for row in rows], frame[name]) for name in NAMES]
    assert np.mean(hits) > 0.9
    names = [name for name in NAMES if rows[0][f"label_{name}"] == "1"]
    assert {*rows[0]["prediction"].split()} == {*names}
    checkpoint = torch.load(RUN / "checkpoints/last.ckpt", weights_only=True)
    assert all(0 < threshold < 1 for threshold in checkpoint["thresholds"])
    baselines = json.loads((RUN / "baselines.json").read_text())
    assert baselines["frequency of each"]["test/f1"] < test["test/f1"]


def test_numbers_far_from_zero_keep_their_digits(fit, frame):
    """In float32 1e9 has steps of 64."""
    test, rows = fit("far", ["far"], "--model=Regressor")
    assert test["test/r2"] > 0.9
    predicted = np.array([float(row["predicted_far"]) for row in rows])
    assert np.abs(predicted - frame["far"]).mean() < 3
    assert len({*predicted.tolist()}) > 500
