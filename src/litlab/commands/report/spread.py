"""Mean and spread of runs that differ only in their seed."""

from collections.abc import Sequence
from typing import Any

from litlab.commands.report.blocks import Block, Paragraph, Table
from litlab.commands.report.facts import Facts
from litlab.commands.report.results_record import beside_seed
from litlab.runs.results import cells, spreads
from litlab.util.text import some


def over_seeds(runs: Sequence[Facts]) -> list[Block]:
    """Return a table for each group of finished runs that differ only in their seed; nothing where there is none."""
    groups: list[list[Facts]] = []
    for facts in runs:
        if facts.settings and facts.status == "finished":
            group = next((group for group in groups if _are_alike(group[0], facts)), None)
            if group is None:
                groups.append([facts])
            else:
                group.append(facts)
    found: list[Block] = []
    for group in groups:
        seeds, names = [str(_seed(facts)) for facts in group], some([facts.run.name for facts in group])
        if len(group) > 1 and len(set(seeds)) < len(seeds):
            found.append(
                Paragraph(f"{names} have the same settings, and some of them the same seed: no spread is given.")
            )
        elif len(group) > 1:
            found.append(_table(group, f"{len(group)} finished runs with the seeds {', '.join(seeds)}: {names}"))
    return found


def _are_alike(one: Facts, other: Facts) -> bool:
    """Return whether two runs have the same settings and data."""
    first, second = ((facts.made.get("data") or {}).get("fingerprint") for facts in (one, other))
    return first == second and not beside_seed([one.settings, other.settings])


def _seed(facts: Facts) -> Any:
    return facts.settings.get("seed_everything", facts.made.get("seed"))


def _table(group: Sequence[Facts], caption: str) -> Table:
    rows = [[name, *cells(spread)] for name, spread in spreads(facts.metrics for facts in group).items()]
    header = ["", "mean", "standard deviation", "95 % interval of the mean", "runs"]
    rows.sort(key=lambda row: not row[0].startswith("test"))
    return Table(header, rows, caption, numbers=True)
