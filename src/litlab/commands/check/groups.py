"""What ``fit --check`` says about the optimizer's groups: their parameters and rates, and what is not trained."""

from lightning.pytorch import LightningModule, Trainer
from rich.markup import escape
from rich.table import Table

from litlab.util.name_patterns import parameter_names, summary


def groups_table(trainer: Trainer, module: LightningModule) -> Table | None:
    """List the groups of the optimizers, and what none of them trains; None where one group trains everything.

    Args:
        trainer: It has optimizers.
        module: The module whose parameters they train.
    """
    names = dict(zip(map(id, module.parameters()), parameter_names(module), strict=True))
    sizes = {id(parameter): parameter.numel() for parameter in module.parameters()}
    rows: list[tuple[str, str, str, list[int]]] = []
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            # The rate that the schedule scales, or the peak of OneCycleLR: a warm-up begins with little of it.
            rate = f"{group.get('max_lr', group.get('initial_lr', group['lr'])):.3g} {group.get('method', '')}".strip()
            decay = f"{group['weight_decay']:.3g}" if "weight_decay" in group else "-"
            part = [id(parameter) for parameter in group["params"]]
            rows += [(rate, decay, "", part)] if part else []
    grouped = {one for row in rows for one in row[-1]}
    rest = [one for one in names if one not in grouped]
    if len(rows) == 1 and not rest:
        return None
    table = Table(title="Parameter groups", title_justify="left")
    for title in ("parameters", "where", "rate", "weight decay"):
        table.add_column(title, overflow="fold")
    for rate, decay, style, part in [*rows, *([("not trained", "-", "yellow", rest)] if rest else [])]:
        where = escape(summary([names[one] for one in part]))
        table.add_row(f"{sum(sizes[one] for one in part):,}", where, rate, decay, style=style)
    return table
