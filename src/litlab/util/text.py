"""Words and numbers for people: in messages, and in tables."""

import json
import shlex
import shutil
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

_NARROW = 15  # characters


def nearest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message on a name that does not exist: the nearest one, or something else
    if none is near.
    """
    known = sorted(set(names))
    lower = {other.lower(): other for other in known}  # the wrong case is the smallest mistake
    close = get_close_matches(name, known, n=1, cutoff=0.6)
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


def decimals(value: float | None) -> str:
    """Return a number as tables show it; a dash for none."""
    return "-" if value is None else f"{value:.4g}"


def print_table(table: "Table") -> None:
    """Print a table with all words whole, where rich would cut numbers; if need be, it is wider
    than the terminal.
    """
    from rich.console import Console
    from rich.measure import measure_renderables

    console = Console(width=shutil.get_terminal_size((160, 24)).columns, highlight=False)
    wide = console.options.update(width=9999)
    least = 1
    for column in table.columns:
        need = measure_renderables(console, wide, [column.header, *column.cells])
        # Cells that are narrow, or one word, are not broken into lines.
        column.no_wrap = need.maximum <= _NARROW or not need.span
        column.min_width = need.maximum if column.no_wrap else need.minimum
        least += column.min_width + 3  # the space and lines around a cell
    console.width = max(console.width, least)
    console.print(table, crop=False)
