"""What litlab's command line does to private attributes of Lightning (2.6.6), which has no public way to do it.

tests/litlab/cli/test_internals.py pins these attributes, and the private methods that `ExperimentCLI` overrides.
"""

from typing import Any

from lightning.fabric.plugins.precision.precision import _PRECISION_INPUT
from lightning.fabric.utilities.device_parser import _select_auto_accelerator
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import MPSAccelerator
from lightning.pytorch.callbacks import WeightAveraging

PrecisionInput = _PRECISION_INPUT  # the type of the Trainer's setting


def release_averages(trainer: Trainer) -> None:
    """Let a test after the fit load averaged weights: while the callback has some, it loads those in training."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, WeightAveraging):
            callback._average_model = None


def accelerator_name(accelerator: Any) -> str:
    """Return the accelerator that the Trainer is going to choose, such as cpu, cuda or mps.

    Args:
        accelerator: The Trainer's setting.
    """
    if not isinstance(accelerator, str):
        return accelerator.name()
    if accelerator == "gpu":
        return "mps" if MPSAccelerator.is_available() else "cuda"
    return _select_auto_accelerator() if accelerator == "auto" else accelerator


def log_at_step(trainer: Trainer, step: int) -> None:
    """Make an evaluation log at a step of the run, where its results belong in the curves."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = step
