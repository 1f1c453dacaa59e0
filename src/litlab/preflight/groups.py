"""What ``fit --check`` says about the optimizer's groups: their parameters, rates and what is frozen."""

import math

from lightning.pytorch import LightningModule, Trainer
from rich.markup import escape
from rich.table import Table
from torch.nn import Parameter

from litlab.callbacks import Freeze
from litlab.util.name_patterns import parameter_names, summary


def groups_table(trainer: Trainer, module: LightningModule, freeze: Freeze | None) -> Table | None:
    """List the groups of the optimizers, and what none of them trains.

    Args:
        trainer: It has optimizers.
        module: The module whose parameters they train.
        freeze: What is trained later, if anything is.

    Returns:
        A row for each group and time at which its training begins, and for each reason why parameters are not trained;
        None where one group trains everything.
    """
    names = dict(zip(map(id, module.parameters()), parameter_names(module), strict=True))
    sizes = dict(zip(names.values(), (p.numel() for p in module.parameters()), strict=True))
    kinds = {
        names[id(parameter)]: f"{type(owner).__name__}.{kind}"
        for owner in module.modules()
        for kind, parameter in owner.named_parameters(recurse=False)
    }
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
    never: dict[str, list[str]] = {}
    for name, parameter in zip(sizes, module.parameters(), strict=True):
        if name not in known:
            never.setdefault(_why_never(parameter, until.get(name)), []).append(name)
    if len(rows) == 1 and not never and not until:
        return None
    table = Table(title="Parameter groups", title_justify="left")
    for title in ("parameters", "where", "rate", "weight decay", "trained"):
        table.add_column(title, overflow="fold")
    for (rate, decay, end), part in rows.items():
        start = "from the start" if not end else f"from epoch {end + 1:g} on"
        table.add_row(f"{sum(sizes[n] for n in part):,}", _where(part, kinds), rate, decay, start)
    for why, part in never.items():
        count = f"{sum(sizes[n] for n in part):,}"
        table.add_row(count, _where(part, kinds), "-", "-", f"never: {why}", style="yellow")
    return table


def _where(part: list[str], kinds: dict[str, str]) -> str:
    """Return names in short, and what they have in common: rows of one block may differ in that alone."""
    text, common = summary(part), {kinds[name] for name in part}
    return escape(f"{text}: {common.pop()}" if text.endswith(")") and len(common) == 1 else text)


def _why_never(parameter: Parameter, until: float | None) -> str:
    if until == math.inf:
        return "frozen by freeze.rules"
    return "in no optimizer" if parameter.requires_grad else "fixed by the model"
