"""What litlab's command line does to private attributes of Lightning (2.6.6), which has no public way to do it.

tests/litlab/cli/test_internals.py pins these attributes, and the private methods that `ExperimentCLI` overrides.
"""

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import WeightAveraging


def release_averages(trainer: Trainer) -> None:
    """Let a test after the fit load averaged weights: while the callback has some, it loads those in training."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, WeightAveraging):
            callback._average_model = None


def log_at_step(trainer: Trainer, step: int) -> None:
    """Make an evaluation log at a step of the run, where its results belong in the curves."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = step
