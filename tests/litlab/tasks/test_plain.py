"""A team's plain LightningModule and LightningDataModule, which inherit nothing of this project."""

import json
from pathlib import Path

import pytest

CONFIG = Path(__file__).parent / "plain/plain.yaml"
FIT = ("fit", "--config", CONFIG)
TRUST = ("--allow_modules", "tests")  # a run may not name other classes than the project's
FOLDER = Path("lightning_logs/plain/version_0")

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:You passed in a `val_dataloader` but have no"
)


def test_all_verbs(run, tmp_path):
    done = run(*FIT, "--ema.decay=0.9")  # a copy of what the command line builds
    assert done.code == 0, done.err
    assert "test_auroc" in done.out
    done = run("validate", "--run", "plain", *TRUST)
    assert done.code == 0, done.err
    assert "val_auroc" in done.out
    done = run("predict", "--run", "plain", *TRUST)
    assert done.code == 2
    assert (
        "predict: TestedPointsData has no write_predictions, and trainer.callbacks no BasePr"
        in done.err
    )
    writer = {"class_path": "tests.litlab.tasks.plain.Writer", "init_args": {"path": "points.csv"}}
    done = run("predict", "--run", "plain", *TRUST, f"--trainer.callbacks=[{json.dumps(writer)}]")
    assert done.code == 0, done.err
    assert Path("points.csv").read_text().count("\n") == 159


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("--model=tests.litlab.tasks.plain.OnlyTrains", "OnlyTrains has no test_step: not tested"),
        (
            "--data=tests.litlab.tasks.plain.PointsData",
            "PointsData has no test_dataloader: not tested",
        ),
    ],
)
def test_what_it_lacks_is_left_out_in_one_line(run, tmp_path, part, line):
    done = run(*FIT, part, "--checkpoint.monitor=null", "--trainer.max_epochs=1")
    assert done.code == 0, done.err
    assert line in done.err
    assert json.loads((FOLDER / "status.json").read_text())["status"] == "finished"
