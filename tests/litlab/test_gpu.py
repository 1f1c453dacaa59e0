"""What only a GPU can show: `make test-gpu`.

tests/fake_cuda.py has what can be known without one.
"""

import pytest
import torch
from lightning.pytorch import Callback

from litlab.runs.find import find_run
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
    """Raises where a training step waits for the GPU, but for the first one: see
    template/test_gpu.py.
    """

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
def fit(run, short):
    """Fits an experiment of auks on one GPU; returns its newest checkpoint."""

    def fit_on_gpu(name, *flags):
        config = CONFIGS / f"{name}.yaml"
        gpu = "--trainer.accelerator=gpu --trainer.devices=1".split()
        run("fit --config", config, *short(config), *gpu, *flags).check()
        return torch.load(find_run("last").checkpoints / "last.ckpt", weights_only=True)

    return fit_on_gpu


@pytest.mark.parametrize("name", ["images", "text", "series"])
def test_float16_is_scaled_and_the_scale_resumes(fit, run, name):
    checkpoint = fit(name, "--trainer.precision=16-mixed")
    scaler = checkpoint["ClippingMixedPrecision"]
    assert all(value.isfinite().all() for value in checkpoint["state_dict"].values())
    assert scaler["scale"] > 1
    run("fit --resume last --trainer.max_epochs=2 --trainer.log_every_n_steps=1").check()
    newest = torch.load(find_run("last").checkpoints / "last.ckpt", weights_only=True)
    assert newest["ClippingMixedPrecision"]["_growth_tracker"] != scaler["_growth_tracker"]


@pytest.mark.parametrize(
    "mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"]
)
def test_compiled_networks_train_like_others(fit, mode):
    flags = "--trainer.precision=32-true --trainer.deterministic=true".split()
    plain = fit("images", *flags)["state_dict"]
    compiled = fit("images", *flags, f"--compile.mode={mode}")["state_dict"]
    torch.testing.assert_close(compiled, plain, rtol=1e-2, atol=1e-3)
