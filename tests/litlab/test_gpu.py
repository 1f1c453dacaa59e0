"""What only a GPU can show: `make test-gpu`.

tests/fake_cuda.py has what can be known without one.
"""

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from tests.litlab.conftest import CONFIGS

QUIET = [
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    # By torch.compile, which makes one to reserve memory
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),
]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(),
        reason="needs a CUDA GPU: tests/fake_cuda.py goes without one",
    ),
    *QUIET,
]


class NoWaiting(Callback):
    """Raises where a training step waits for the GPU, but for the first one."""

    steps = 0

    def on_train_batch_start(self, *anything):
        if self.steps:
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, *anything):
        self.off()
        self.steps += 1

    def off(self, *anything):
        torch.cuda.set_sync_debug_mode("default")

    on_exception = off


@pytest.fixture
def fit(run, short, tmp_path, monkeypatch):
    """Fits an experiment of auks on one GPU; returns its newest checkpoint."""

    def fit_on_gpu(name, *flags, callback=None):
        whole = Trainer.fit
        if callback is not None:
            monkeypatch.setattr(
                Trainer,
                "fit",
                lambda self, *a, **k: (self.callbacks.append(callback), whole(self, *a, **k)),
            )
        config = CONFIGS / f"{name}.yaml"
        done = run(
            "fit",
            "--config",
            config,
            *short(config),
            "--trainer.accelerator=gpu",
            "--trainer.devices=1",
            *flags,
        )
        assert done.code == 0, done.err
        newest = max(
            (tmp_path / f"lightning_logs/{name}").iterdir(), key=lambda path: path.stat().st_mtime
        )
        return torch.load(newest / "checkpoints/last.ckpt", weights_only=True)

    return fit_on_gpu


def finite(checkpoint):
    return all(value.isfinite().all() for value in checkpoint["state_dict"].values())


@pytest.mark.parametrize("name", ["images", "text", "series"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_steps_wait_for_nothing(fit, name, precision):
    watch = NoWaiting()
    quiet = [
        "--trainer.log_every_n_steps=1000",
        "--trainer.enable_progress_bar=false",
        "--ema.decay=0.9",
    ]
    checkpoint = fit(
        name, f"--trainer.precision={precision}", *quiet, "--data.batch_size=8", callback=watch
    )
    assert watch.steps > 2
    assert finite(checkpoint)


@pytest.mark.parametrize("name", ["images", "text", "series"])
def test_float16_is_scaled_and_the_scale_resumes(fit, run, tmp_path, name):
    checkpoint = fit(name, "--trainer.precision=16-mixed")
    scale = checkpoint["ClippingMixedPrecision"]["scale"]
    assert finite(checkpoint)
    assert scale > 1
    done = run("fit", "--resume", "last", "--trainer.max_epochs=2", "--trainer.log_every_n_steps=1")
    assert done.code == 0, done.err
    newest = torch.load(
        tmp_path / f"lightning_logs/{name}/version_0/checkpoints/last.ckpt", weights_only=True
    )
    assert (
        newest["ClippingMixedPrecision"]["_growth_tracker"]
        != checkpoint["ClippingMixedPrecision"]["_growth_tracker"]
    )


@pytest.mark.parametrize(
    "mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"]
)
def test_compiled_networks_train_like_others(fit, mode):
    plain = fit("images", "--trainer.precision=32-true", "--trainer.deterministic=true")
    compiled = fit(
        "images",
        "--trainer.precision=32-true",
        "--trainer.deterministic=true",
        f"--compile.mode={mode}",
    )
    assert plain["state_dict"].keys() == compiled["state_dict"].keys()
    for name, value in plain["state_dict"].items():
        torch.testing.assert_close(compiled["state_dict"][name], value, rtol=1e-2, atol=1e-3)
