"""Tables that keep their numbers whole in a terminal of any width."""

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

SHORTEST = 8  # columns that a long word gets at least, before the rows become blocks
NUMBER = re.compile(r"\W*\d")  # how a word begins that is never folded: -1.5e+04, ~0.99, (3.2, 2026-01-31


class Fitted:
    """Shows a table as wide as the terminal allows: words fold first, and where that isn't enough, rows become blocks.

    Rich cuts what does not fit, numbers included. Here nothing is cut, and no number is broken over two lines.

    Args:
        table: The table, its cells strings or `Text`, with their natural widths. Its first column names the rows.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it for the width at hand."""
        columns = [[_text(cell) for cell in (column.header, *column.cells)] for column in self.table.columns]
        widths = [max(map(_natural, cells)) for cells in columns]
        least = [max(map(_least, cells)) for cells in columns]
        wide = options.update(width=100_000)
        if Measurement.get(console, wide, self.table).maximum <= options.max_width:
            yield self.table
            return
        # Rich before 15 counts the padding of columns whose width is set differently: what is shown is measured.
        borders = Measurement.get(console, wide, self._with(widths)).maximum - sum(widths)
        room = options.max_width - borders
        if sum(least) > room:
            yield from self._blocks(columns)
            return
        while sum(widths) > room:
            widest = max((n for n in range(len(widths)) if widths[n] > least[n]), key=widths.__getitem__)
            widths[widest] -= 1
        yield self._with(widths)

    def _with(self, widths: list[int]) -> Table:
        table = copy(self.table)  # the same table may be shown again on another width
        table.columns = [
            replace(column, width=width, no_wrap=False, overflow="fold")
            for column, width in zip(self.table.columns, widths, strict=True)
        ]
        return table

    def _blocks(self, columns: list[list[Text]]) -> Iterator[Text | Padding]:
        if self.table.title is not None:
            yield _text(self.table.title)
        for number, row in enumerate(self.table.rows, 1):
            for column, cells in enumerate(columns):
                if column and not cells[number].plain:
                    continue
                heading = f"{cells[0].plain}: " if cells[0].plain and column else ""
                line = Text.assemble(heading, cells[number], style=row.style or "", overflow="fold")
                yield Padding(line, (0, 0, 0, 2)) if column else line


def _text(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def _natural(text: Text) -> int:
    return max(map(cell_len, text.plain.splitlines()), default=0)


def _least(text: Text) -> int:
    """Return the narrowest column that the text folds into with its numbers whole."""
    return max((_least_of_word(word) for word in text.plain.split()), default=0)


def _least_of_word(word: str) -> int:
    return cell_len(word) if NUMBER.match(word) else min(cell_len(word), SHORTEST)
