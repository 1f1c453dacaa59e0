"""``fit --check``: whether a run is going to work, and what it will cost."""

import math
from collections.abc import Iterator
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from rich.markup import escape
from rich.table import Table

from litlab.callbacks import AGC, ActivationCheckpointing, Compile, Freeze, OptimizerInBackward
from litlab.callbacks.averaging import AveragedWeights
from litlab.callbacks.second_trainer import second_trainer
from litlab.cli.out_of_memory import explain_out_of_memory
from litlab.commands.check.cost import checkpoint_bytes, run_length
from litlab.commands.check.groups import groups_table
from litlab.commands.check.probe import Probe
from litlab.errors import UserError
from litlab.util.steps import Enough
from litlab.util.text import some, terminal

PART_OF_A_STEP = (Freeze, ActivationCheckpointing, GradientAccumulationScheduler)
REFUSE_IN_SETUP = (OptimizerInBackward, AGC, AveragedWeights)
FAR_OFF = 2.0  # times the loss of a guess: a start this high gets a warning


def check(trainer: Trainer, model: LightningModule, data: LightningDataModule) -> None:
    """Make a few steps of a fit and print what they say about all of it. Only caches of the data are written.

    Args:
        trainer: The run's Trainer. The steps go through another one, with its settings, on one device.
        model: The model. Its weights are not the same afterwards.
        data: The data.

    Raises:
        UserError: If the run would not work.
    """
    callbacks: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    for callback in callbacks:
        if isinstance(callback, REFUSE_IN_SETUP):
            callback.setup(trainer, model, "fit")
            callback.teardown(trainer, model, "fit")
    kept = [callback for callback in callbacks if isinstance(callback, PART_OF_A_STEP)]
    probe = Probe(next((callback for callback in kept if isinstance(callback, Freeze)), None))
    second = second_trainer(trainer, [*kept, probe])
    try:
        second.fit(model, datamodule=data)
    except Enough:
        pass
    except (MemoryError, RuntimeError) as error:
        advice = explain_out_of_memory(error)
        raise (error if advice is None else UserError(advice)) from None
    finally:
        if probe.training_batch:
            _print([*_describe_run(second, probe, model, data), *_describe_cost(trainer, second, probe, model, data)])
            groups = groups_table(second, model)
            terminal().print(groups or "")
    if not probe.training_batch:
        raise UserError(
            "trainer: there is nothing to train; the data has no training batch, or max_epochs, max_steps or "
            "limit_train_batches is 0"
        )


def _print(facts: list[tuple[str, str]]) -> None:
    table = Table(title="Preflight", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts:
        table.add_row(name, escape(fact), style={"warning": "yellow", "DATA": "bold red"}.get(name))
    terminal().print(table)


def _describe_run(second: Trainer, probe: Probe, model: Any, data: Any) -> Iterator[tuple[str, str]]:
    """Yield what the first steps have shown; not all of it where they have failed."""
    generated = getattr(data, "generated", False)
    yield "DATA" if generated else "data", getattr(data, "description", None) or type(data).__name__
    yield "training batch", f"{probe.training_batch}; the first after {probe.first_batch_after:.1f} s"
    yield "device", f"{second.strategy.root_device}, {second.precision}"
    if probe.loss is not None:
        guess = probe.expected_loss
        yield "loss at start", f"{probe.loss:.4g}{'' if guess is None else f' (a guess: {guess:.4g})'}"
        # A lower one is not a fault: a network may start from a baseline, or from trained weights.
        if guess is not None and probe.loss > FAR_OFF * guess:
            times = f"{probe.loss / guess:.1f} times as high as that of a guess"
            yield "warning", f"the loss starts {times}: check the scale of the inputs and of the network's last layer"
    if probe.parameters:
        yield "model", f"{type(model).__name__}: {probe.parameters:,} parameters, {probe.trained:,} of them trained"
    if probe.no_gradient:
        yield "warning", f"the gradient of {some(probe.no_gradient)} is zero in the first steps"


def _describe_cost(
    run: Trainer, second: Trainer, probe: Probe, model: Any, data: LightningDataModule
) -> Iterator[tuple[str, str]]:
    """Yield what the run will cost, once steps have been timed."""
    if probe.step_seconds is None or not probe.memory_gib:
        return
    processes = run.num_devices * run.num_nodes
    length = run_length(run, second.num_training_batches, probe.validation_batches > 0)
    validation = probe.validation_seconds / processes
    timed = f"mean of {probe.timed_steps}" if probe.timed_steps else "of the first ones: the epoch is short"
    yield "step", f"{_duration(probe.step_seconds)} ({timed})"
    batch = f"{_duration(validation)}; batch: {probe.validation_batch}"
    yield "validation", batch if probe.validation_batches else "none"
    yield "run", str(length)
    seconds = length.steps * probe.step_seconds + (length.validations * validation if validation else 0.0)
    if math.isfinite(seconds):
        yield "time", f"about {_duration(seconds)}, if it does not stop early"
    yield "memory", f"{probe.memory_gib:.2f} GiB"
    if run.checkpoint_callback is not None:
        yield "checkpoint", f"{checkpoint_bytes(run, second, model, data) / 2**20:.1f} MiB each"
    if any(isinstance(callback, Compile) for callback in run.callbacks):  # pyright: ignore[reportAttributeAccessIssue]
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
