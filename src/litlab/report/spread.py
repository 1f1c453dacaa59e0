"""Mean and spread of runs that differ only in their seed."""

import json
from collections.abc import Sequence
from typing import Any

from litlab.report.blocks import Block, Table, Words
from litlab.report.facts import Facts
from litlab.util.commands import decimals, some
from litlab.util.spread import spreads

OF_A_SEED = ("seed_everything", "data.seed", "experiment")  # what such runs may differ in: one has the folder's name


def seed_of(facts: Facts) -> Any:
    """Return the seed of a run."""
    return facts.settings.get("seed_everything", facts.made.get("seed"))


def over_seeds(runs: Sequence[Facts]) -> list[Block]:
    """Return a table for each group of finished runs that differ only in their seed; nothing where there is none."""
    groups: dict[str, list[Facts]] = {}
    for facts in runs:
        if facts.settings and facts.status == "finished":
            same = {key: value for key, value in facts.settings.items() if key not in OF_A_SEED}
            groups.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(facts)
    found: list[Block] = []
    for group in groups.values():
        seeds, names = [str(seed_of(facts)) for facts in group], some([facts.run.name for facts in group])
        if len(group) > 1 and len(set(seeds)) < len(seeds):
            found.append(Words(f"{names} have the same settings, and some of them the same seed: no spread is given."))
        elif len(group) > 1:
            found.append(_table(group, f"{len(group)} finished runs with the seeds {', '.join(seeds)}: {names}"))
    return found


def _table(group: Sequence[Facts], caption: str) -> Table:
    rows = []
    for name, spread in spreads(facts.metrics for facts in group).items():
        interval = "-" if spread.interval is None else " to ".join(map(decimals, spread.interval))
        rows.append([name, decimals(spread.mean), decimals(spread.deviation), interval, str(spread.count)])
    header = ["", "mean", "standard deviation", "95 % interval of the mean", "runs"]
    rows.sort(key=lambda row: not row[0].startswith("test"))
    return Table(header, rows, caption, numbers=True)
