"""``fit --check``: whether a run is going to work, and what it will cost."""

import math
from collections.abc import Iterator

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from rich.markup import escape
from rich.table import Table

from litlab.callbacks import AGC, ActivationCheckpointing, Compile, Freeze, OptimizerInBackward
from litlab.callbacks.averaging import AveragedWeights
from litlab.callbacks.second_trainer import second_trainer
from litlab.errors import UserError
from litlab.preflight.cost import checkpoint_bytes, length
from litlab.preflight.groups import groups_table
from litlab.preflight.out_of_memory import out_of_memory_advice
from litlab.preflight.probe import Enough, Probe
from litlab.util.host_memory import GIB
from litlab.util.text import some, terminal

KEPT = (Freeze, ActivationCheckpointing, GradientAccumulationScheduler)
FAR_OFF = 2.0  # times the loss of a guess: a start this high gets a warning


def preflight(trainer: Trainer, model: LightningModule, datamodule: LightningDataModule) -> None:
    """Make a few steps of a fit and print what they say about all of it. Only caches of the data are written.

    The steps go through a Trainer with the settings of the run, on one device. Of its callbacks only `KEPT` are there.

    Args:
        trainer: The run's Trainer. Only its settings are used.
        model: The model. Its weights are not the same afterwards.
        datamodule: The data.

    Raises:
        UserError: If the run would not work.
    """
    freeze = next((callback for callback in trainer.callbacks if isinstance(callback, Freeze)), None)  # pyright: ignore[reportAttributeAccessIssue]
    probe = Probe(freeze)
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, OptimizerInBackward | AGC | AveragedWeights):  # they refuse what they can't work with
            callback.setup(trainer, model, "fit")
            callback.teardown(trainer, model, "fit")
    kept = [callback for callback in trainer.callbacks if isinstance(callback, KEPT)]  # pyright: ignore[reportAttributeAccessIssue]
    check = second_trainer(trainer, [*kept, probe])
    try:
        check.fit(model, datamodule=datamodule)
        if not probe.training_batch:
            raise UserError(
                "trainer: there is nothing to train; the data has no training batch, or max_epochs, max_steps or "
                "limit_train_batches is 0."
            )
    except Enough:
        pass
    except (MemoryError, RuntimeError) as error:
        advice = out_of_memory_advice(error, check)
        if advice is None:
            raise
        raise UserError(advice) from error
    finally:
        if probe.training_batch:
            _print([*_found(check, probe, model, datamodule), *_costs(trainer, check, probe, model, datamodule)])
            if (groups := groups_table(check, model, freeze)) is not None:
                terminal().print(groups)


def _print(facts: list[tuple[str, str]]) -> None:
    table = Table(title="Preflight", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts:
        style = {"warning": "yellow", "DATA": "bold red"}.get(name)
        table.add_row(name, escape(fact), style=style)
    terminal().print(table)


def _found(
    check: Trainer, probe: Probe, model: LightningModule, data: LightningDataModule
) -> Iterator[tuple[str, str]]:
    """Yield what the first steps have shown; not all of it where they have failed."""
    yield "config", "valid"
    name = "DATA" if getattr(data, "generated", False) else "data"
    yield name, getattr(data, "description", None) or type(data).__name__
    yield "training batch", f"{probe.training_batch}; the first after {probe.first_batch_after:.1f} s"
    yield "device", f"{check.strategy.root_device}, {check.precision}"
    if probe.loss is not None:
        guess = "" if probe.expected_loss is None else f" (a guess: {probe.expected_loss:.4g})"
        yield "loss at start", f"{probe.loss:.4g}{guess}"
        # A lower one is not a fault: a network may start from a baseline, or from trained weights.
        if probe.expected_loss is not None and probe.loss > FAR_OFF * probe.expected_loss:
            yield (
                "warning",
                f"the loss starts {probe.loss / probe.expected_loss:.1f} times as high as that of a guess: check the "
                "scale of the inputs and of the network's last layer.",
            )
    if probe.parameters[0]:
        name = type(model).__name__
        yield "model", f"{name}: {probe.parameters[0]:,} parameters, {probe.parameters[1]:,} of them trained"
    if probe.no_gradient:
        yield (
            "warning",
            f"the gradient of {some(probe.no_gradient)} is zero in the first steps: it may be a dead unit, or a layer "
            "before one that starts at zero.",
        )


def _costs(
    run: Trainer, check: Trainer, probe: Probe, model: LightningModule, data: LightningDataModule
) -> Iterator[tuple[str, str]]:
    """Yield what the run will cost, once steps have been timed."""
    if not probe.memory_gib or probe.step_seconds is None:
        return
    processes = run.num_devices * run.num_nodes
    whole = length(run, check.num_training_batches, probe.validation_batches > 0)
    validation = probe.validation_seconds / processes
    mean = (
        f"mean of {probe.timed_steps}" if probe.timed_steps else "of the first ones: the epoch has too few to warm up"
    )
    yield "step", f"{_duration(probe.step_seconds)} ({mean})"
    if probe.validation_batches:
        yield "validation", f"{_duration(validation)}; batch: {probe.validation_batch}"
    else:
        yield "validation", "none"
    yield "run", str(whole)
    seconds = whole.steps * probe.step_seconds + (whole.validations * validation if validation else 0.0)
    if math.isfinite(seconds):
        yield "time", f"about {_duration(seconds)}, if it does not stop early"
    yield "memory", f"{probe.memory_gib:.2f} GiB{_of_total(check.strategy.root_device)}"
    if run.checkpoint_callback is not None:
        yield "checkpoint", f"{checkpoint_bytes(run, check, model, data) / 2**20:.1f} MiB each"
    if missing := list(_not_included(run, processes)):
        yield "not included", "; ".join(missing)


def _not_included(run: Trainer, processes: int) -> Iterator[str]:
    if any(isinstance(callback, Compile) for callback in run.callbacks):  # pyright: ignore[reportAttributeAccessIssue]
        yield "torch.compile: its time, and what it gains"
    if any(isinstance(callback, OptimizerInBackward) for callback in run.callbacks):  # pyright: ignore[reportAttributeAccessIssue]
        yield "the memory that OptimizerInBackward saves"
    if processes > 1:
        yield f"communication between {processes} processes: one was tried, with its share of the batches"
    if not hasattr(run, "val_check_interval"):
        yield "validations by time (trainer.val_check_interval)"


def _duration(seconds: float) -> str:
    if math.isinf(seconds):
        return "unknown"
    if seconds < 0.9995:  # above, it would read 1e+03 ms
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _of_total(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    return f" of {torch.cuda.get_device_properties(device).total_memory / GIB:.2f}"
