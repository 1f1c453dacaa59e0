"""What ``fit --check`` says about the optimizer's groups: their parameters, rates and what is frozen."""

import math

from lightning.pytorch import LightningModule, Trainer
from rich.markup import escape
from rich.table import Table

from litlab.callbacks import Freeze
from litlab.util.name_patterns import parameter_names, summary


def groups_table(trainer: Trainer, module: LightningModule, freeze: Freeze | None) -> Table | None:
    """List the groups of the optimizers, and what none of them trains.

    Args:
        trainer: It has optimizers.
        module: The module whose parameters they train.
        freeze: What is trained later, if anything is.

    Returns:
        A row for each group and time at which its training begins; None where one group trains everything.
    """
    names = dict(zip(map(id, module.parameters()), parameter_names(module), strict=True))
    sizes = dict(zip(names.values(), (p.numel() for p in module.parameters()), strict=True))
    until = {} if freeze is None else freeze.until
    rows: dict[tuple[str, str, float], list[str]] = {}
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            # The rate that the schedule scales, or the peak of OneCycleLR: a warm-up begins with little of it.
            rate = f"{group.get('max_lr', group.get('initial_lr', group['lr'])):.3g}"
            rate, decay = f"{rate} {group.get('method', '')}".strip(), group.get("weight_decay")  # `Muon` has methods
            for name in (names.pop(id(parameter)) for parameter in group["params"]):
                end = until.get(name, 0)
                if end < math.inf:
                    rows.setdefault((rate, "-" if decay is None else f"{decay:.3g}", end), []).append(name)
    known = {name for part in rows.values() for name in part}
    never = [name for name in sizes if name not in known]
    if len(rows) == 1 and not never and not until:
        return None
    table = Table(title="Parameter groups", title_justify="left")
    for title in ("parameters", "where", "rate", "weight decay", "trained"):
        table.add_column(title, overflow="fold")
    for (rate, decay, end), part in rows.items():
        start = "from the start" if not end else f"from epoch {end + 1:g} on"
        table.add_row(f"{sum(sizes[n] for n in part):,}", escape(summary(part)), rate, decay, start)
    if never:
        table.add_row(f"{sum(sizes[n] for n in never):,}", escape(summary(never)), "-", "-", "never", style="yellow")
    return table
