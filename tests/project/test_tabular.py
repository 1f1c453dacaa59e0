"""The table experiment, from a CSV file to predictions, for classes and for numbers."""

import csv
import json
import math
import shutil

import numpy as np
import pytest

from litlab.testing import ModuleContract
from tests.conftest import CONFIGS, command

HEADER = ["size", "age", "city", "when", "kind", "price"]
SHORT = ["--data.batch_size=16", "--trainer.max_epochs=8", "--trainer.accelerator=cpu"]


@pytest.fixture(scope="session")
def houses(tmp_path_factory):
    """A CSV file of 160 houses; some cells are empty."""
    path = tmp_path_factory.mktemp("tables") / "houses.csv"
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(HEADER)
        for number in range(160):
            size, age, city = rng.uniform(20, 200), rng.integers(0, 90), rng.choice(["Bonn", "Mainz", "Trier"])
            price = 1000 * size - 500 * age + 30_000 * (city == "Bonn") + rng.normal(0, 2000)
            kind = "house" if size + 40 * (city == "Bonn") > 110 else "flat"
            writer.writerow(
                [f"{size:.1f}", age if number % 9 else "", city, f"2024-{1 + number // 14:02}", kind, f"{price:.0f}"]
            )
    return path


class TestClasses(ModuleContract):
    config = CONFIGS / "tabular.yaml"
    settings = (
        "--data.batch_size=40", "--trainer.callbacks=[]", "--ema=null", "--model.network.dropout=0",
        "--model.network.hidden_sizes=[128,128]",
    )  # fmt: skip
    loss_at_start = math.log(2)


class TestNumbers(ModuleContract):
    config = CONFIGS / "tabular.yaml"
    settings = (*TestClasses.settings, "--model=Regressor", "--data.target=spend")
    tolerance = 0.2

    def theory(self, batch):
        target = batch[1]
        return ((target - 100) / 48).square().mean().item()  # the mean and deviation of all rows


def fitted(folder, target, *flags):
    """Fits in a folder of its own, in this process; returns the run's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(target, folder / "houses.csv")
        data = ["--data.dataset=csv", "--data.path=houses.csv", *SHORT]
        assert command(patch, "fit", "--config", CONFIGS / "tabular.yaml", *data, *flags) == 0
        (folder / "houses.csv").unlink()  # what follows needs the run alone
    return folder / "lightning_logs/tabular/version_0"


@pytest.fixture(scope="module")
def classes(houses, tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("classes"), houses, "--data.target=kind", "--data.ignore=[when,price]")


@pytest.fixture(scope="module")
def numbers(houses, tmp_path_factory):
    return fitted(
        tmp_path_factory.mktemp("numbers"), houses, "--data.target=price", "--data.ignore=[kind]", "--model=Regressor",
        "--data.group_column=when", "--model.loss=huber",
    )  # fmt: skip


def test_a_run_has_its_baselines_beside_it(classes, numbers):
    rows = json.loads((classes / "baselines.json").read_text())
    assert list(rows) == ["Classifier", "most frequent class", "gradient boosting"]
    assert rows["Classifier"]["test/acc"] > rows["most frequent class"]["test/acc"] + 0.2
    rows = json.loads((numbers / "baselines.json").read_text())
    assert list(rows) == ["Regressor", "mean", "gradient boosting"]
    assert rows["Regressor"]["test/r2"] > 0.6
    assert rows["Regressor"]["test/mae"] < 0.6 * rows["mean"]["test/mae"]
    assert rows["gradient boosting"]["test/mae"] < rows["mean"]["test/mae"]


NEW = [["city", "size", "age"], ["Bonn", "150", "10"], ["Mainz", "40", ""], ["Rom", "190", "50"], ["Trier", "30", "80"]]


def predict(run, fitted, tmp_path):
    with (tmp_path / "new.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(NEW)
    for _ in range(2):  # what is there is replaced
        done = run("predict", "--run", fitted, "--input", "new.csv", "--output", "out.csv")
        assert done.code == 0, done.err
    with (tmp_path / "out.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_predicting_classes_from_a_run_alone(classes, run, tmp_path):
    rows = predict(run, classes, tmp_path)
    assert [(row["row"], row["prediction"]) for row in rows] == [
        ("2", "house"),
        ("3", "flat"),
        ("4", "house"),
        ("5", "flat"),
    ]
    assert all(float(row["flat"]) + float(row["house"]) == pytest.approx(1, abs=1e-5) for row in rows)


def test_predicting_numbers_from_a_run_alone(numbers, run, tmp_path):
    rows = predict(run, numbers, tmp_path)
    prices = [float(row["predicted_price"]) for row in rows]
    assert [row["row"] for row in rows] == ["2", "3", "4", "5"]
    assert prices == pytest.approx([175_000, 20_000, 175_000, -10_000], abs=50_000)
