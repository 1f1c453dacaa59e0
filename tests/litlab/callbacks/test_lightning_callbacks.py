"""Callbacks of Lightning work in a run, or are refused in one line."""

import json
from pathlib import Path

import pytest
import torch

from tests.litlab.callbacks import lightning_parts as parts
from tests.litlab.conftest import CONFIGS

FOLDER = Path("lightning_logs/smoke/version_0")
PARTS = "tests.litlab.callbacks.lightning_parts"
TRUST = ("--allow_modules", "tests")
WATCH = {"class_path": f"{PARTS}.Watch"}
TOGETHER = {  # what goes into one run
    "DeviceStatsMonitor": {"cpu_stats": True},
    "EarlyStopping": {"monitor": "val/loss"},
    "GradientAccumulationScheduler": {"scheduling": {"0": 1, "1": 2}},
    "LambdaCallback": {"on_fit_end": f"{PARTS}.note_end"},
    "LearningRateMonitor": {"logging_interval": "step"},
    "ModelCheckpoint": {"filename": "mine", "monitor": "val/loss"},
    "ModelSummary": {"max_depth": 2},
    "OnExceptionCheckpoint": {"dirpath": "left"},
    "TQDMProgressBar": {"refresh_rate": 1},
    "ThroughputMonitor": {"batch_size_fn": "litlab.callbacks.batches.count_samples", "window_size": 2},
    "Timer": {"duration": "00:01:00:00"},
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:When using the `ThroughputMonitor`, you need to define a `flops_per_batch`",
    "ignore:.fit.ckpt_path=.last.. is set, but there is no last checkpoint",
    "ignore:`.fit.ckpt_path=None.` was called without a model",
    "ignore:You're using the WeightAveraging callback, but loading a checkpoint outside",
)


@pytest.fixture
def fit(run, series, monkeypatch):
    """Runs a fit of some epochs of four batches with callbacks of Lightning."""
    parts.SEEN.clear()
    monkeypatch.setattr(parts.Watch, "stop_at", None)

    def run_fit(callbacks: dict[str, dict], *flags: str, stop_at: int | None = None):
        named = [{"class_path": f"lightning.pytorch.callbacks.{name}", "init_args": a} for name, a in callbacks.items()]
        parts.Watch.stop_at = stop_at
        arguments = [
            "fit", "--config", CONFIGS / "series.yaml", "--config", CONFIGS / "with/smoke.yaml",
            "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.context_length=24",
            "--data.horizon=4", "--data.batch_size=64", "--data.val_fraction=0.15", "--model.hidden_size=4",
            "--trainer.max_epochs=2", "--trainer.limit_train_batches=4", "--trainer.accelerator=cpu",
            f"--trainer.callbacks={json.dumps([WATCH, *named])}", *flags,
        ]  # fmt: skip
        if stop_at is None:
            return run(*arguments)
        with pytest.raises(InterruptedError):
            run(*arguments)
        parts.Watch.stop_at = None
        return None

    return run_fit


def _checkpoint(name: str = "last.ckpt") -> dict:
    return torch.load(FOLDER / "checkpoints" / name, weights_only=True)


def test_callbacks_that_go_together(fit, run):
    done = fit(TOGETHER)
    assert done.code == 0, done.err
    assert parts.SEEN["ended"] == [4 + 2]  # steps: two batches are one in the second epoch
    assert (FOLDER / "checkpoints/mine.ckpt").is_file()
    states = _checkpoint()["callbacks"]
    assert states["Timer"]["time_elapsed"]["train"] > 0
    assert "epoch 1/2" not in done.out  # its own progress bar is the only one
    logged = _logged()
    assert "lr-Adam" in logged
    assert any("batches_per_sec" in name for name in logged)
    assert any(name.startswith("DeviceStatsMonitor.on_train_batch_start/cpu_percent") for name in logged)
    done = run("fit", "--resume", "smoke", *TRUST, "--trainer.max_epochs=3")
    assert done.code == 0, done.err
    assert parts.SEEN["ended"] == [4 + 2 + 2]


def _logged() -> set[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(FOLDER))
    events.Reload()
    return set(events.Tags()["scalars"])


def test_averages_of_the_weights(fit, run):
    """The average is tested and kept, and a resumed run has the numbers of one that never stopped."""
    average = {"EMAWeightAveraging": {}}
    done = fit(average)
    assert done.code == 0, done.err
    whole = _checkpoint()
    best = torch.load(next((FOLDER / "checkpoints").glob("epoch*")), weights_only=True)["state_dict"]
    assert all(torch.equal(best[key], weight) for key, weight in parts.SEEN["tested"][0].items())
    fit(average, "--experiment=smoke/parts", stop_at=1)
    done = run("fit", "--resume", "lightning_logs/smoke/parts/version_0", *TRUST)
    assert done.code == 0, done.err
    resumed = torch.load("lightning_logs/smoke/parts/version_0/checkpoints/last.ckpt", weights_only=True)
    assert all(torch.equal(weight, resumed["state_dict"][key]) for key, weight in whole["state_dict"].items())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("BatchSizeFinder", {"init_val": 16, "max_trials": 2, "steps_per_trial": 1}),
        ("ModelPruning", {"pruning_fn": "l1_unstructured", "amount": 0.5}),
    ],
)
def test_what_is_not_in_checkpoints_is_not_resumed(fit, run, name, settings):
    done = fit({name: settings, "RichProgressBar": {}, "RichModelSummary": {}}, "--test_after_fit=false")
    assert done.code == 0, done.err
    done = run("fit", "--resume", "smoke", *TRUST, "--trainer.max_epochs=3")
    assert done.code == 2
    assert f"error: trainer.callbacks: checkpoints don't hold what {name} has done" in done.err
