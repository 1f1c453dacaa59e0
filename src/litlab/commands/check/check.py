"""``fit --check``: whether a run is going to work, and what it will cost."""

from contextlib import suppress
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer

from litlab.callbacks.lr_finder import build_second_trainer
from litlab.commands.check.cost import describe_cost
from litlab.commands.check.probe import Probe
from litlab.errors import UserError
from litlab.optim.parameters import summarise
from litlab.runs.table import show_table
from litlab.util.steps import Enough, is_part_of_step


def check(trainer: Trainer, model: LightningModule, data: LightningDataModule) -> None:
    """Make a few steps of a fit and print what they say about all of it. Only caches of the data are written.

    The steps go through another Trainer, with the run's settings, on one device; the weights differ afterwards.
    """
    callbacks: Any = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    probe = Probe()
    second = build_second_trainer(trainer, [*filter(is_part_of_step, callbacks), probe])
    try:
        with suppress(Enough):
            second.fit(model, datamodule=data)
        if not probe.facts:
            raise UserError(
                "trainer: there is nothing to train; the data has no training batch, or max_epochs, max_steps or "
                "limit_train_batches is 0"
            )
        probe.facts += describe_cost(trainer, second, probe)
    finally:  # what was found before a refusal helps to understand it
        if probe.facts:
            name = "DATA" if getattr(data, "generated", False) else "data"
            description = getattr(data, "description", None) or type(data).__name__
            device = f"{second.strategy.root_device}, {second.precision}"
            show_table(("check", "result"), [(name, description), ("device", device), *probe.facts], "Preflight")
    rows = list_groups(second, model)
    if len(rows) > 1:
        show_table(("parameters", "where", "rate", "weight decay"), rows, "Parameter groups")


def list_groups(trainer: Trainer, module: LightningModule) -> list[tuple[str, str, str, str]]:
    """List the groups of the optimizers, and what none of them trains: parameters, where, rate, weight decay."""
    rows: list[tuple[str, str, str, str]] = []
    rest = {parameter: name for name, parameter in module.named_parameters()}

    def add_row(parameters: list, rate: str, decay: str) -> None:
        names = [rest.pop(parameter) for parameter in parameters]
        if names:
            count = sum(parameter.numel() for parameter in parameters)
            rows.append((f"{count:,}", summarise(names), rate, decay))

    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            # The rate that the schedule scales, or the peak of OneCycleLR: a warm-up begins with little of it.
            rate = group.get("max_lr", group.get("initial_lr", group["lr"]))
            decay = f"{group['weight_decay']:.3g}" if "weight_decay" in group else "-"
            add_row(group["params"], f"{rate:.3g} {group.get('method', '')}".strip(), decay)
    add_row(list(rest), "not trained", "-")
    return rows
