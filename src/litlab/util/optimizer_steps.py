"""How many optimizer steps a run has, where the number of batches for each differs between epochs too."""

import math
from itertools import pairwise

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler


def accumulation(trainer: Trainer) -> GradientAccumulationScheduler:
    """Return what says how many batches there are for each step: the run's callback, or the same for all epochs."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, GradientAccumulationScheduler):
            return callback
    return GradientAccumulationScheduler({0: trainer.accumulate_grad_batches})


def steps_of_epochs(trainer: Trainer, batches: float, first: int, end: float) -> float:
    """Return the optimizer steps of some epochs; the last step of each may have fewer batches than the others.

    Args:
        trainer: The trainer.
        batches: Training batches of an epoch; inf where it is not known.
        first: The first epoch, counted from 0.
        end: The epoch after the last one; inf for a run without an end.
    """
    if end <= first:
        return 0
    if math.isinf(batches) or math.isinf(end):
        return math.inf
    schedule = accumulation(trainer)
    bounds = [first, *(epoch for epoch in schedule.epochs if first < epoch < end), int(end)]
    return sum(
        (after - before) * math.ceil(batches / schedule.get_accumulate_grad_batches(before))
        for before, after in pairwise(bounds)
    )


def whole_epochs(trainer: Trainer, batches: int, steps: int) -> tuple[int, int]:
    """Return the whole epochs in a number of optimizer steps, counted from the beginning, and the batches that remain.

    Args:
        trainer: The trainer.
        batches: Training batches of an epoch.
        steps: Optimizer steps.
    """
    schedule = accumulation(trainer)
    done = 0
    for end in [*schedule.epochs[1:], math.inf]:
        each = math.ceil(batches / schedule.get_accumulate_grad_batches(done))
        whole = int(min(steps // each, end - done))
        done, steps = done + whole, steps - whole * each
        if done < end:
            break
    return done, steps * schedule.get_accumulate_grad_batches(done)


def steps_of_run(trainer: Trainer) -> float:
    """Return the optimizer steps of a fit; inf if it has no end.

    ``trainer.estimated_stepping_batches`` (Lightning 2.6.6) is the same, except that it takes the accumulation of the
    epoch it is asked in for that of all epochs.
    """
    estimate = trainer.estimated_stepping_batches  # loads the data, if need be
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if epochs is None or epochs < 0 or math.isinf(batches):
        return estimate
    steps = steps_of_epochs(trainer, batches, 0, max(epochs, 1))
    return steps if trainer.max_steps == -1 else min(steps, trainer.max_steps)
