"""``fit --check``: whether a run is going to work, and what it will cost."""

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer

from litlab.callbacks import Compile
from litlab.callbacks.lr_finder import build_second_trainer
from litlab.cli.preflight import Preflight
from litlab.cli.trainer import check_trained
from litlab.commands.check.probe import Probe
from litlab.optim.param_groups import find_peak, summarise
from litlab.runs.table import show_table
from litlab.util.device import peak_gib
from litlab.util.steps import Enough, count_steps, is_part_of_step


def check(trainer: Trainer, model: LightningModule, data: LightningDataModule) -> None:
    """Make a few steps of a fit and print what they say about all of it. Only caches of the data
    are written.

    The steps go through another Trainer, with the run's settings, on one device; the weights differ
    afterwards.
    """
    callbacks: Any = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    probe = Probe()
    second = build_second_trainer(
        trainer, [*filter(is_part_of_step, callbacks), Preflight(trainer), probe]
    )
    try:
        with suppress(Enough):
            second.fit(model, datamodule=data)
        check_trained(second)
        probe.facts += describe_cost(trainer, second, probe)
    finally:  # what was found before a refusal helps to understand it
        if probe.facts:
            name = "DATA" if getattr(data, "generated", False) else "data"
            description = getattr(data, "description", None) or type(data).__name__
            device = f"{second.strategy.root_device}, {second.precision}"
            show_table(
                ("check", "result"),
                [(name, description), ("device", device), *probe.facts],
                "Preflight",
            )
    rows = list_groups(second, model)
    if len(rows) > 1:
        show_table(("parameters", "where", "rate", "weight decay"), rows, "Parameter groups")


def list_groups(trainer: Trainer, module: LightningModule) -> list[tuple[str, str, str, str]]:
    """List the groups of the optimizers, and what none of them trains: parameters, where, rate,
    weight decay.
    """
    rows: list[tuple[str, str, str, str]] = []
    rest = {parameter: name for name, parameter in module.named_parameters()}

    def add_row(parameters: list, rate: str, decay: str) -> None:
        names = [rest.pop(parameter) for parameter in parameters]
        if names:
            count = sum(parameter.numel() for parameter in parameters)
            rows.append((f"{count:,}", summarise(names), rate, decay))

    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            # Not the rate as it is: a warm-up begins with little of it
            rate = f"{find_peak(group):.3g} {group.get('method', '')}".strip()
            decay = f"{group['weight_decay']:.3g}" if "weight_decay" in group else "-"
            add_row(group["params"], rate, decay)
    add_row(list(rest), "not trained", "-")
    return rows


def run_length(run: Trainer, batches: float, validated: bool) -> tuple[float, float, float]:
    """Return optimizer steps of an epoch, the mean where epochs differ, and steps and validations
    of a whole run.

    They are those of a run that does not stop early; inf if there is no limit, or it is not known;
    validations are an estimate. `batches` are those of an epoch for a single process, under its
    limit. Validations by time (``val_check_interval``) are not counted.
    """
    # Steps
    # A number is for each process
    if isinstance(run.limit_train_batches, float) and math.isfinite(batches):
        batches = max(1, batches // (run.num_devices * run.num_nodes))
    default = 1000 if run.max_steps < 0 else math.inf  # Lightning's
    epochs = {None: default, -1: math.inf}.get(run.max_epochs, run.max_epochs)
    steps = count_steps(run, batches, epochs)
    per_epoch = steps / epochs if math.isfinite(steps) and epochs else count_steps(run, batches, 1)
    steps = min(steps, math.inf if run.max_steps < 0 else run.max_steps)

    # Validations
    every = getattr(run, "val_check_interval", math.inf)  # missing where it is a time
    in_epoch = batches / every if isinstance(every, int) else 1 / every
    validations = steps / per_epoch * in_epoch / (run.check_val_every_n_epoch or 1)
    return per_epoch, steps, validations if validated else 0


def describe_cost(run: Trainer, second: Trainer, probe: Probe) -> Iterator[tuple[str, str]]:
    processes = run.num_devices * run.num_nodes
    length = run_length(run, second.num_training_batches, probe.validation_batches > 0)
    validation = probe.validation_seconds / processes
    seconds = length[1] * probe.step_seconds + (length[2] * validation if validation else 0.0)
    per_epoch, steps, validations = (
        f"{number:,.0f}" if math.isfinite(number) else "unlimited" for number in length
    )

    yield "step", _duration(probe.step_seconds)
    yield "validation", _duration(validation) if probe.validation_batches else "none"
    yield "run", f"{steps} steps, {per_epoch} an epoch; {validations} validations"
    if math.isfinite(seconds):
        yield (
            "time",
            f"about {_duration(seconds)} at the pace of the first steps, if it does not stop early",
        )
    yield "memory", f"{peak_gib(second):.2f} GiB"
    callbacks: Any = run.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    if any(isinstance(callback, Compile) for callback in callbacks):
        yield "not included", "torch.compile: its time, and what it gains"
    if processes > 1:
        yield (
            "not included",
            f"communication between {processes} processes; one was tried, with its share",
        )


def _duration(seconds: float) -> str:
    if math.isinf(seconds):
        return "unknown"
    if seconds < 0.9995:  # above, it would read 1e+03 ms
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
