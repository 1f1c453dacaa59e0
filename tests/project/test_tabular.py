"""The table experiment, from a CSV file to predictions, for classes and for numbers."""

import csv
import json
import math

import numpy as np
import pytest

from litlab.testing import ModuleContract
from tests.conftest import CONFIGS

SHORT = ["--data.batch_size=16", "--trainer.max_epochs=8", "--trainer.accelerator=cpu"]


def write_houses(path):
    """Write a CSV file of 160 houses; some cells are empty."""
    rng = np.random.default_rng(0)
    rows = ["size,age,city,kind"]
    for number in range(160):
        size, age, city = (
            rng.uniform(20, 200),
            rng.integers(0, 90),
            rng.choice(["Bonn", "Mainz", "Trier"]),
        )
        kind = "house" if size + 40 * (city == "Bonn") > 110 else "flat"
        rows.append(f"{size:.1f},{age if number % 9 else ''},{city},{kind}")
    path.write_text("\n".join([*rows, ""]))


class TestClasses(ModuleContract):
    config = CONFIGS / "tabular.yaml"
    settings = (
        *"""
            --data.batch_size=40 --trainer.callbacks=[] --ema=null --model.network.dropout=0
            --model.network.hidden_sizes=[128,128] --model.optimizer.lr=0.01
        """.split(),
    )  # fmt: skip
    loss_at_start = math.log(2)
    overfit_steps = 30


def test_a_run_has_its_baselines_beside_it_and_predicts_without_its_data(run, tmp_path):
    write_houses(tmp_path / "houses.csv")
    columns = ["--data.dataset=csv", "--data.path=houses.csv", "--data.target=kind"]
    done = run("fit --config", CONFIGS / "tabular.yaml", *columns, *SHORT)
    assert done.code == 0, done.err
    rows = json.loads((tmp_path / "lightning_logs/tabular/version_0/baselines.json").read_text())
    assert list(rows) == ["Classifier", "most frequent class", "gradient boosting"]
    assert rows["Classifier"]["test/acc"] > rows["most frequent class"]["test/acc"] + 0.2

    (tmp_path / "houses.csv").unlink()  # what follows needs the run alone
    (tmp_path / "new.csv").write_text(
        "city,size,age\nBonn,150,10\nMainz,40,\nRom,190,50\nTrier,30,80\n"
    )
    done = run("predict --run tabular --input new.csv --output out.csv")
    assert done.code == 0, done.err
    with (tmp_path / "out.csv").open(newline="") as stream:
        predicted = list(csv.DictReader(stream))
    expected = [("2", "house"), ("3", "flat"), ("4", "house"), ("5", "flat")]
    assert [(row["row"], row["prediction"]) for row in predicted] == expected
    assert all(
        float(row["flat"]) + float(row["house"]) == pytest.approx(1, abs=1e-5) for row in predicted
    )
