"""A team's plain LightningModule and LightningDataModule, which inherit nothing of this project."""

import json
from pathlib import Path

import pytest
from lightning.pytorch.demos.boring_classes import BoringModel

from tests.litlab.runs.conftest import error
from tests.litlab.tasks.plain import PointsData

CONFIG = Path(__file__).parent / "plain/plain.yaml"
FIT = ("fit", "--config", CONFIG)
RUN = "--run plain --allow_modules tests"  # a run may not name other classes than the project's
FOLDER = Path("lightning_logs/plain/version_0")

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:You passed in a `val_dataloader` but have no"
)


def test_all_verbs(run):
    # A copy of what the command line builds
    assert "test_auroc" in run(*FIT, "--ema.decay=0.9").check().out
    assert "val_auroc" in run(f"validate {RUN}").check().out
    line = "predict: PointsData has no write_predictions, and trainer.callbacks no BasePr"
    assert line in error(run(f"predict {RUN}"))
    writer = "--trainer.callbacks=tests.litlab.tasks.plain.Writer"
    run(f"predict {RUN} {writer} --trainer.callbacks.path=points.csv").check()
    assert Path("points.csv").read_text().count("\n") == 159


@pytest.mark.parametrize(
    ("owner", "lacks", "says"),
    [
        (BoringModel, ["validation_step", "test_step"], "Points has no test_step"),
        (PointsData, ["test_dataloader"], "PointsData has no test_dataloader"),
    ],
)
def test_what_it_lacks_is_left_out_in_one_line(run, monkeypatch, owner, lacks, says):
    for method in lacks:
        monkeypatch.delattr(owner, method)
    done = run(*FIT, "--checkpoint.monitor=null", "--trainer.max_epochs=1").check()
    assert f"{says}: not tested" in done.err
    assert json.loads((FOLDER / "status.json").read_text())["status"] == "finished"
