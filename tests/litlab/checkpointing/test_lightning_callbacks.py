"""Callbacks of Lightning work in a run that is resumed, or are refused in one line."""

from pathlib import Path

import pytest
import torch
import yaml

from tests.litlab.callbacks.tiny import are_equal
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.conftest import error

FOLDER = Path("lightning_logs/smoke/version_0")
TOGETHER = """
trainer:
  callbacks:
  - {class_path: DeviceStatsMonitor, init_args: {cpu_stats: true}}
  - {class_path: lightning.pytorch.callbacks.EMAWeightAveraging}
  - {class_path: EarlyStopping, init_args: {monitor: val/loss}}
  - {class_path: GradientAccumulationScheduler, init_args: {scheduling: {0: 1, 1: 2}}}
  - {class_path: LearningRateMonitor, init_args: {logging_interval: step}}
  - {class_path: ModelCheckpoint, init_args: {filename: mine, monitor: val/loss}}
  - {class_path: OnExceptionCheckpoint, init_args: {dirpath: left}}
  - {class_path: TQDMProgressBar, init_args: {refresh_rate: 1}}
  - class_path: ThroughputMonitor
    init_args: {batch_size_fn: litlab.util.steps.count_samples, window_size: 2}
  - {class_path: Timer, init_args: {duration: "00:01:00:00"}}
"""

pytestmark = pytest.mark.filterwarnings(
    "ignore:When using the `ThroughputMonitor`, you need to define a `flops_per_batch`",
    "ignore:.fit.ckpt_path=.last.. is set, but there is no last checkpoint",
    "ignore:`.fit.ckpt_path=None.` was called without a model",
    "ignore:You're using the WeightAveraging callback, but loading a checkpoint outside",
)


def test_callbacks_that_go_together(run, series):
    """In a run of two epochs of four batches."""
    Path("together.yaml").write_text(TOGETHER)
    line = f"""
        fit --config={CONFIGS}/series.yaml --config={CONFIGS}/with/smoke.yaml --data.dataset=csv
        --data.path={series} --data.targets=[load] --data.context_length=24 --data.horizon=4
        --data.batch_size=64 --data.val_fraction=0.15 --model.hidden_size=4 --trainer.max_epochs=2
        --trainer.limit_train_batches=4 --trainer.accelerator=cpu
        --config=together.yaml
    """
    done = run(line).check()
    assert "epoch 1/2" not in done.out  # its own progress bar is the only one
    assert (FOLDER / "checkpoints/mine.ckpt").is_file()
    saved = torch.load(FOLDER / "checkpoints/last.ckpt", weights_only=True)
    assert saved["global_step"] == 4 + 2  # two batches are one in the second epoch
    assert saved["callbacks"]["Timer"]["time_elapsed"]["train"] > 0
    assert not are_equal(saved["state_dict"], saved["current_model_state"])
    again = "fit --resume smoke --trainer.max_epochs=3".split()
    assert "count_samples here; if you trust it, add --allow_modules litlab" in error(run(*again))
    run(*again, "--allow_modules=litlab.util").check()
    saved = torch.load(FOLDER / "checkpoints/last.ckpt", weights_only=True)
    assert saved["global_step"] == 4 + 2 + 2


def test_what_is_not_in_checkpoints_is_not_resumed(run, folder):
    config = yaml.safe_load(folder.config.read_text())
    finder = {"class_path": "lightning.pytorch.callbacks.LearningRateFinder"}
    config["trainer"]["callbacks"] = [finder]
    folder.config.write_text(yaml.safe_dump(config))
    line = "trainer.callbacks: checkpoints don't hold what LearningRateFinder has done"
    assert line in error(run("fit --resume series --trainer.max_epochs=3"))
