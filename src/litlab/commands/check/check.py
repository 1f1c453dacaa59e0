"""``fit --check``: whether a run is going to work, and what it will cost."""

from contextlib import suppress
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from rich.markup import escape
from rich.table import Table

from litlab.callbacks import AGC, ActivationCheckpointing, Freeze
from litlab.callbacks.averaging import AveragedWeights
from litlab.callbacks.finder import second_trainer
from litlab.commands.check.cost import describe_cost
from litlab.commands.check.groups import groups_table
from litlab.commands.check.probe import Probe
from litlab.errors import UserError
from litlab.util.steps import Enough
from litlab.util.text import terminal

PART_OF_A_STEP = (AGC, ActivationCheckpointing, AveragedWeights, Freeze, GradientAccumulationScheduler)
STYLES = {"warning": "yellow", "DATA": "bold red"}


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
    kept = [callback for callback in callbacks if isinstance(callback, PART_OF_A_STEP)]
    probe = Probe()
    second = second_trainer(trainer, [*kept, probe])
    try:
        with suppress(Enough):
            second.fit(model, datamodule=data)
        if not probe.facts:
            raise UserError(
                "trainer: there is nothing to train; the data has no training batch, or max_epochs, max_steps or "
                "limit_train_batches is 0"
            )
        probe.facts += describe_cost(trainer, second, probe, model, data)
    finally:  # what was found before a refusal helps to understand it
        if probe.facts:
            name = "DATA" if getattr(data, "generated", False) else "data"
            description = getattr(data, "description", None) or type(data).__name__
            device = f"{second.strategy.root_device}, {second.precision}"
            _print([(name, description), ("device", device), *probe.facts])
    terminal().print(groups_table(second, model) or "")


def _print(facts: list[tuple[str, str]]) -> None:
    table = Table(title="Preflight", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts:
        table.add_row(name, escape(fact), style=STYLES.get(name))
    terminal().print(table)
