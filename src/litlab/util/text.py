"""Words and numbers for people: in messages, and in tables."""

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

MOST_DECIMALS = 4  # where numbers of different kinds stand below each other
_NARROW = 14  # characters


def nearest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message on a name that does not exist: the nearest one, or something else
    if none is near.
    """
    candidates = sorted(set(names))
    lower = {other.lower(): other for other in candidates}  # the wrong case is the smallest mistake
    close = get_close_matches(name, candidates, n=1, cutoff=0.6)
    best = lower.get(name.lower(), close[0] if close else None)
    return otherwise if best is None else f"; did you mean '{best}'?"


def some(names: Sequence[str]) -> str:
    """Return the first few of many names."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def add_to_list(flag: str, names: Sequence[str]) -> str:
    """Return a flag that adds names to the list which is set, as a shell takes it."""
    return f"{flag}+ {shlex.quote(json.dumps(list(names), ensure_ascii=False))}"


def plural(count: int, noun: str) -> str:
    """Return how many there are of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def count_decimals(values: Iterable[float | None]) -> int:
    """Return how many decimals to show of numbers that people compare: as many as the largest one
    needs for five digits from 1 on, or four below 1. So 1.0000 is as long as 0.8182.
    """
    sizes = [abs(value) for value in values if value is not None and math.isfinite(value)]
    _, _, exponent = f"{max(sizes, default=0.0):.4e}".partition("e")  # of the rounded number
    return max(0, 4 - int(exponent) if int(exponent) >= 0 else 3 - int(exponent))


def format_number(value: float | None, places: int | None = None) -> str:
    """Return a number as tables show it, a dash for none.

    Args:
        value: The number.
        places: Its decimals, from the numbers that it is compared with; None: from itself, as for
            a number of which fewer than two digits would be left.
    """
    if value is None:
        return "-"
    size = abs(value)
    if places is None or 0 < size < 10 ** (1 - places):
        places = count_decimals([value])
    return f"{value:.3e}" if 0 < size < 1e-4 or size >= 1e7 else f"{value:.{places}f}"


def format_column(values: Sequence[float | None]) -> list[str]:
    """Return numbers that people compare as tables show them, with equally many decimals."""
    places = count_decimals(values)
    return [format_number(value, places) for value in values]


def print_table(table: "Table") -> None:
    """Print a table with all words whole, where rich would cut numbers; if need be, it is wider
    than the terminal.
    """
    from rich.console import Console
    from rich.measure import measure_renderables

    console = Console(width=shutil.get_terminal_size((160, 24)).columns, highlight=False)
    wide = console.options.update(width=9999)
    needs = [
        measure_renderables(console, wide, [column.header, *column.cells])
        for column in table.columns
    ]
    # Cells that are narrow, or one word, are not broken into lines
    least = [need.maximum if need.maximum <= _NARROW else need.minimum for need in needs]
    widths = [need.maximum for need in needs]
    # The space and lines around the cells
    around = 3 * len(widths) + 1 if table.box else 2 * len(widths) - 2
    # The widest column gives first: of rich's own widths some words would need more
    while sum(widths) > max(console.width - around, sum(least)):
        widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
        widths[widest] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    console.width = max(console.width, sum(widths) + around)
    with console.capture() as printed:
        console.print(table, crop=False)
    # Spaces at the end of a wide line would become an empty one
    print(re.sub(r" +(?=( |\x1b\[[\d;]*m)*$)", "", printed.get(), flags=re.MULTILINE), end="")
