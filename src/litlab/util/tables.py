"""Tables that keep their numbers whole in a terminal of any width, where rich would cut them."""

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

SHORTEST = 8  # columns that a long word gets at least, before the rows become blocks
NUMBER = re.compile(r"\W*\d")  # how a word begins that is never folded: -1.5e+04, ~0.99, (3.2, 2026-01-31


class Fitted:
    """Shows a table as wide as the terminal allows: words fold first, and where that isn't enough, rows become blocks.

    Args:
        table: The table, its cells strings or `Text`. Its first column names the rows.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [[_as_text(cell) for cell in (column.header, *column.cells)] for column in self.table.columns]
        widths = [max(_width(text) for text in column) for column in cells]
        least = [max(_least_width(text) for text in column) for column in cells]

        borders = Measurement.get(console, options.update(width=100_000), self._resize(widths)).maximum - sum(widths)
        room = options.max_width - borders
        if sum(least) > room:
            yield from self._blocks(cells)
            return
        while sum(widths) > room:
            widest = max((n for n in range(len(widths)) if widths[n] > least[n]), key=widths.__getitem__)
            widths[widest] -= 1
        yield self._resize(widths)

    def _resize(self, widths: list[int]) -> Table:
        table = copy(self.table)  # the same table may be shown again on another width
        pairs = zip(self.table.columns, widths, strict=True)
        table.columns = [replace(column, width=width, no_wrap=False, overflow="fold") for column, width in pairs]
        return table

    def _blocks(self, cells: list[list[Text]]) -> Iterator[Text | Padding]:
        if self.table.title is not None:
            yield _as_text(self.table.title)
        for row in zip(*(column[1:] for column in cells), strict=True):
            yield row[0]
            for column, text in zip(cells[1:], row[1:], strict=True):
                heading = f"{column[0].plain}: " if column[0].plain else ""
                if text.plain:
                    yield Padding(Text.assemble(heading, text, overflow="fold"), (0, 0, 0, 2))


def _as_text(cell: object) -> Text:
    text = cell if isinstance(cell, Text) else Text.from_markup(str(cell))
    text.overflow = "fold"
    return text


def _width(text: Text) -> int:
    return max((Text(line).cell_len for line in text.plain.splitlines()), default=0)


def _least_width(text: Text) -> int:
    """Return the narrowest column that the text folds into with its numbers whole."""
    words = [(word, Text(word).cell_len) for word in text.plain.split()]
    return max((width if NUMBER.match(word) else min(width, SHORTEST) for word, width in words), default=0)
