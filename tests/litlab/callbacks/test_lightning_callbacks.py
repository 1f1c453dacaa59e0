"""Every callback of Lightning works in a run, or is refused in one line."""

import json
from pathlib import Path

import lightning.pytorch.callbacks as lightning_callbacks
import pytest
import torch

from tests.litlab.callbacks import lightning_parts as parts
from tests.litlab.conftest import CONFIGS

FOLDER = Path("lightning_logs/smoke/version_0")
PARTS = "tests.litlab.callbacks.lightning_parts"
TRUST = ("--allow_modules", "tests")
WATCH = {"class_path": f"{PARTS}.Watch"}
ADVANCED = '--trainer.profiler={"class_path": "AdvancedProfiler", "init_args": {"filename": "slow"}}'
REFUSED = {"Callback", "Checkpoint", "BaseFinetuning", "BasePredictionWriter", "ProgressBar"}  # bases, not for use
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
    "ThroughputMonitor": {"batch_size_fn": "litlab.callbacks.memory.count_samples", "window_size": 2},
    "Timer": {"duration": "00:01:00:00"},
}
BY_ITSELF = {  # what has a test of its own below, or in tests/litlab/tasks/test_plain.py
    "BackboneFinetuning",
    "BatchSizeFinder",
    "EMAWeightAveraging",
    "LearningRateFinder",
    "ModelPruning",
    "RichModelSummary",
    "RichProgressBar",
    "SpikeDetection",
    "StochasticWeightAveraging",
    "WeightAveraging",
}

pytestmark = pytest.mark.filterwarnings(
    "ignore:When using the `ThroughputMonitor`, you need to define a `flops_per_batch`",
    "ignore:.fit.ckpt_path=.last.. is set, but there is no last checkpoint",
    "ignore:`.fit.ckpt_path=None.` was called without a model",
    "ignore:You're using the WeightAveraging callback, but loading a checkpoint outside",
    "ignore:You are trying to `self.log..` but",
    "ignore:.*SWA is currently only supported every epoch",
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


def test_every_callback_of_lightning_is_considered():
    assert set(lightning_callbacks.__all__) == REFUSED | TOGETHER.keys() | BY_ITSELF


def test_callbacks_that_go_together(fit, run):
    done = fit(TOGETHER)
    assert done.code == 0, done.err
    assert parts.SEEN["ended"] == [4 + 2]  # steps: two batches are one in the second epoch
    assert (FOLDER / "checkpoints/mine.ckpt").is_file()
    states = _checkpoint()["callbacks"]
    assert states["Timer"]["time_elapsed"]["train"] > 0
    assert "lightning.fabric" not in (FOLDER / "config.yaml").read_text()
    assert "Unable to serialize" not in (FOLDER / "config.yaml").read_text() + done.err
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


@pytest.mark.parametrize("name", ["EMAWeightAveraging", "WeightAveraging"])
def test_averages_of_the_weights(fit, run, name):
    """The average is tested and kept, and a resumed run has the numbers of one that never stopped."""
    done = fit({name: {}}, "--trainer.detect_anomaly=true", "--trainer.inference_mode=false", ADVANCED)
    assert done.code == 0, done.err
    whole = _checkpoint()
    assert "run_training_batch" in (FOLDER / "fit-slow.txt").read_text()
    assert not all(torch.equal(whole["state_dict"][key], w) for key, w in whole["current_model_state"].items())
    best = torch.load(next((FOLDER / "checkpoints").glob("epoch*")), weights_only=True)["state_dict"]
    assert all(torch.equal(best[key], weight) for key, weight in parts.SEEN["tested"][0].items())
    if name == "WeightAveraging":
        return
    fit({name: {}}, "--experiment=smoke/parts", stop_at=1)
    done = run("fit", "--resume", "lightning_logs/smoke/parts/version_0", *TRUST)
    assert done.code == 0, done.err
    resumed = torch.load("lightning_logs/smoke/parts/version_0/checkpoints/last.ckpt", weights_only=True)
    assert all(torch.equal(weight, resumed["state_dict"][key]) for key, weight in whole["state_dict"].items())


def test_stochastic_weight_averaging(fit, run):
    swa = {"StochasticWeightAveraging": {"swa_lrs": 0.02, "swa_epoch_start": 2, "annealing_epochs": 1}}
    fit(swa, "--trainer.max_epochs=3", "--test_after_fit=false", stop_at=2)
    assert "device: cpu" in (FOLDER / "config.yaml").read_text()
    done = run("fit", "--resume", "smoke", *TRUST)
    assert done.code == 0, done.err
    assert parts.SEEN["rates"][:4] == [[0.005]] * 4
    assert parts.SEEN["rates"][-1] != [0.005]
    assert _checkpoint()["callbacks"]["StochasticWeightAveraging"]["n_averaged"] == 2


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("BatchSizeFinder", {"init_val": 16, "max_trials": 2, "steps_per_trial": 1}),
        ("LearningRateFinder", {"num_training_steps": 30, "min_lr": 1e-4}),
        ("ModelPruning", {"pruning_fn": "l1_unstructured", "amount": 0.5}),
        ("SpikeDetection", {}),
    ],
)
def test_what_is_not_in_checkpoints_is_not_resumed(fit, run, name, settings):
    done = fit({name: settings, "RichProgressBar": {}, "RichModelSummary": {}}, "--test_after_fit=false")
    assert done.code == 0, done.err
    assert "Unable to serialize" not in (FOLDER / "config.yaml").read_text() + done.err
    done = run("fit", "--resume", "smoke", *TRUST, "--trainer.max_epochs=3")
    assert done.code == 2
    assert f"error: trainer.callbacks: checkpoints don't hold what {name} has done" in done.err


def test_fast_dev_run_leaves_nothing(fit):
    before = set(Path.cwd().iterdir())
    done = fit({}, "--trainer.fast_dev_run=true", "--checkpoint.every_n_train_steps=1", "--trainer.profiler=simple")
    assert done.code == 0, done.err
    assert "FIT Profiler Report" in done.err
    assert set(Path.cwd().iterdir()) == before
