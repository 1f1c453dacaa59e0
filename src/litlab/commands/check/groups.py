"""What ``fit --check`` says about the optimizer's groups: their parameters and rates, and what is not trained."""

from lightning.pytorch import LightningModule, Trainer
from rich.markup import escape
from rich.table import Table

from litlab.optim.parameters import summarise


def groups_table(trainer: Trainer, module: LightningModule) -> Table | None:
    """List the groups of the optimizers, and what none of them trains; None where one group trains everything.

    Args:
        trainer: It has optimizers.
        module: The module whose parameters they train.
    """
    table = Table(title="Parameter groups", title_justify="left")
    for title in ("parameters", "where", "rate", "weight decay"):
        table.add_column(title, overflow="fold")
    rest = {parameter: name for name, parameter in module.named_parameters()}

    def add_row(parameters: list, rate: str, decay: str, style: str = "") -> None:
        names = [rest.pop(parameter) for parameter in parameters]
        if names:
            count = sum(parameter.numel() for parameter in parameters)
            table.add_row(f"{count:,}", escape(summarise(names)), rate, decay, style=style)

    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            # The rate that the schedule scales, or the peak of OneCycleLR: a warm-up begins with little of it.
            rate = group.get("max_lr", group.get("initial_lr", group["lr"]))
            decay = f"{group['weight_decay']:.3g}" if "weight_decay" in group else "-"
            add_row(group["params"], f"{rate:.3g} {group.get('method', '')}".strip(), decay)
    add_row(list(rest), "not trained", "-", "yellow")
    return table if table.row_count > 1 else None
