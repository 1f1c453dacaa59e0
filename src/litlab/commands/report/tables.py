"""Tables of results: a run beside its baselines, and which value is the best."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from litlab.commands.report.blocks import Evaluation, Table
from litlab.commands.report.facts import Facts
from litlab.runs import results
from litlab.util.text import decimals


def beside_baselines(facts: Facts, evaluation: Evaluation | None) -> Table | None:
    """Return the test metrics of a run beside those of its baselines; None for a run without a test.

    Args:
        facts: The run.
        evaluation: Where the run itself has no test metrics, those of its checkpoint now.
    """
    tested: Mapping[str, float | None] = facts.metrics.get("test") or {}
    caption = "Test"
    if not tested and evaluation is not None:
        tested, caption = evaluation.metrics, "Test of the checkpoint, made for this report"
    if not tested:
        return None
    rows = [(str(facts.settings.get("model") or "model"), tested), *facts.baselines.items()]
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    winners = best_values([row for _, row in rows], [facts.metrics])
    best = {
        (place, column)
        for place, (_, row) in enumerate(rows)
        for column, name in enumerate(names, 1)
        if name in winners and row.get(name) == winners[name]
    }
    cells = [[who, *(decimals(row.get(name)) for name in names)] for who, row in rows]
    caption += ", on generated data" if facts.generated else ""
    return Table(["", *(name.removeprefix("test/") for name in names)], cells, caption, frozenset(best), numbers=True)


def best_values(columns: Iterable[Mapping[str, float | None]], runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the best value of each metric, where several have different ones, and it is known what is better.

    Args:
        columns: Metrics by name, of what is compared.
        runs: The ``metrics.json`` of the runs: what they monitored says what is better.
    """
    values: dict[str, list[float]] = {}
    for column in columns:
        for name, value in column.items():
            if value is not None and math.isfinite(value):
                values.setdefault(name, []).append(value)
    found = {}
    for name, known in values.items():
        sign = results.direction(name, runs)
        if sign and min(known) < max(known):
            found[name] = max(known) if sign > 0 else min(known)
    return found


def validation_line(facts: Facts) -> str:
    """Return the metrics of the validation in a line; "" for a run without any."""
    best = facts.metrics.get("best") or {}
    parts = []
    if best.get("value") is not None:
        parts.append(f"Best {best['monitor']}: {decimals(best['value'])}, {best.get('checkpoint')}.")
    if last := facts.metrics.get("val"):
        parts.append("Last validation: " + ", ".join(f"{name} {decimals(value)}" for name, value in last.items()) + ".")
    return " ".join(parts)
