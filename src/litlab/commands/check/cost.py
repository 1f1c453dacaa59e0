"""What a run costs: its length by its settings, and what a few timed steps say."""

import math
from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Trainer

from litlab.callbacks import Compile
from litlab.commands.check.probe import Probe
from litlab.util.device import peak_gib
from litlab.util.steps import count_steps


def run_length(run: Trainer, batches: float, validated: bool) -> tuple[float, float, float]:
    """Return optimizer steps of an epoch, the mean where epochs differ, and steps and validations of a whole run.

    They are those of a run that does not stop early; inf if there is no limit, or it is not known. `batches` are those
    of an epoch for a single process, under its limit. Validations by time (``val_check_interval``) are not counted.
    """
    # Steps
    if isinstance(run.limit_train_batches, float) and math.isfinite(batches):  # a number is for each process
        batches = max(1, batches // (run.num_devices * run.num_nodes))
    default = 1000 if run.max_steps < 0 else math.inf  # Lightning's
    epochs = {None: default, -1: math.inf}.get(run.max_epochs, run.max_epochs)
    steps = count_steps(run, batches, epochs)
    per_epoch = steps / epochs if math.isfinite(steps) and epochs else count_steps(run, batches, 1)
    steps = min(steps, math.inf if run.max_steps < 0 else run.max_steps)

    # Validations
    every = getattr(run, "val_check_interval", None)  # missing where it is a time
    if every is None or not validated:
        return per_epoch, steps, 0
    if math.isinf(steps) or math.isinf(batches):
        return per_epoch, steps, math.inf
    epochs = steps / per_epoch
    if run.check_val_every_n_epoch is None:  # every that many batches, across epochs
        return per_epoch, steps, epochs * batches // every
    if run.check_val_every_n_epoch > 1:
        epochs //= run.check_val_every_n_epoch
    interval = every if isinstance(every, int) else max(1, int(batches * every))
    return per_epoch, steps, int(epochs * (batches // interval) + 1e-6)


def describe_cost(run: Trainer, second: Trainer, probe: Probe) -> Iterator[tuple[str, str]]:
    processes = run.num_devices * run.num_nodes
    length = run_length(run, second.num_training_batches, probe.validation_batches > 0)
    validation = probe.validation_seconds / processes
    seconds = length[1] * probe.step_seconds + (length[2] * validation if validation else 0.0)
    per_epoch, steps, validations = (f"{number:,.0f}" if math.isfinite(number) else "unlimited" for number in length)

    yield "step", _duration(probe.step_seconds)
    yield "validation", _duration(validation) if probe.validation_batches else "none"
    yield "run", f"{steps} steps, {per_epoch} an epoch; {validations} validations"
    if math.isfinite(seconds):
        yield "time", f"about {_duration(seconds)} at the pace of the first steps, if it does not stop early"
    yield "memory", f"{peak_gib(second):.2f} GiB"
    callbacks: Any = run.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    if any(isinstance(callback, Compile) for callback in callbacks):
        yield "not included", "torch.compile: its time, and what it gains"
    if processes > 1:
        yield "not included", f"communication between {processes} processes; one was tried, with its share"


def _duration(seconds: float) -> str:
    if math.isinf(seconds):
        return "unknown"
    if seconds < 0.9995:  # above, it would read 1e+03 ms
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
