"""Metrics that the YAML names, in runs that are interrupted: the numbers are those of a run that was not."""

import json

import pytest

from tests.litlab.checkpointing.resuming import Cell, Resuming
from tests.litlab.conftest import CONFIGS

CLASSIFICATION = "torchmetrics.classification"
METRICS = {
    "auroc": {"class_path": "torchmetrics.AUROC", "init_args": {"task": "multiclass"}},  # all it has seen, in lists
    "ap": {"class_path": f"{CLASSIFICATION}.MulticlassAveragePrecision", "init_args": {"num_classes": 10}},
    "ece": {"class_path": f"{CLASSIFICATION}.MulticlassCalibrationError", "init_args": {"num_classes": 10}},
    "hinge": {"class_path": f"{CLASSIFICATION}.MulticlassHingeLoss", "init_args": {"num_classes": 10}},  # a float sum
}
CURVES = [f"{stage}/{name}" for stage in ("train", "val") for name in METRICS]


@pytest.fixture(scope="module")
def resuming(images, tmp_path_factory) -> Resuming:
    def own(cell: Cell) -> list[str]:
        return [
            "--config", str(CONFIGS / "images.yaml"), "--data.dataset=folder", f"--data.path={images}",
            f"--data.batch_size={22 // cell.ranks}", "--model=Classifier", "--model.network=auks.images.MNASNet",
            "--model.optimizer=torch.optim.SGD", "--model.optimizer.lr=0.1",
            f"--model.metrics={json.dumps(METRICS)}",
        ]  # fmt: skip

    return Resuming("auks", tmp_path_factory.mktemp("resuming"), own)


@pytest.mark.parametrize(
    "cell",
    [  # the second differs from a cell of test_resume_matrix.py by the metrics alone
        Cell("images", "SIGTERM", "inside"),
        pytest.param(Cell("images", "kill", "inside", ranks=2), marks=pytest.mark.matrix),
    ],
    ids=str,
)
def test_metrics_of_a_resumed_run_are_exact(cell, resuming):
    """The signal makes a checkpoint where the other run has none; that must not change how floats are summed."""
    assert resuming.interrupted(cell)[1] == []
    curves = resuming.whole(cell).curves
    assert all(len(curves[name]) == 3 for name in CURVES)
    assert len({value for _, value in curves["train/auroc"]}) == 3
