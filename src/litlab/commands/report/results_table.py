"""Tables of results in Markdown: a YAML file describes each, its figures are in result files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from litlab.commands.report.results_files import FOLDER, ResultFiles, Steps, steps_of
from litlab.commands.report.results_text import figure, origin
from litlab.errors import UserError
from litlab.util.text import nearest
from litlab.util.yaml import Loader, read_mapping, read_text

TABLES = FOLDER / "tables"
EXAMPLE = "rows: [{from: tables.json > results > wine, cells: [wine]}]"
BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Row(NamedTuple):
    """A row of a description.

    Attributes:
        place: Its file and line, for messages.
        start: Path at which the paths in its cells begin; () where they begin with a file.
        cells: A Markdown text for each column, with figures in braces: ``{mse > mean | .3f}``.
    """

    place: str
    start: Steps
    cells: list[str]


def table(name: str, files: ResultFiles) -> list[str]:
    """Return the lines of a table, and below it which command made which row, when, and on what machine.

    Args:
        name: Of its description in ``benchmarks/results/tables/``, without ``.yaml``.
        files: The result files.

    Raises:
        UserError: If the description or a result file is wrong, or they don't fit.
    """
    titles, rows = read_description(TABLES / f"{name}.yaml", files)
    made_by: dict[str, int] = {}  # in words, and the number in the table
    grid = [[*titles, "made by"], ["---"] * (len(titles) + 1)]
    for row in rows:
        try:
            cells, used = zip(*(_filled(cell, row.start, files) for cell in row.cells), strict=True)
            origins = [origin(files.origin(path)) for paths in used for path in paths]
        except UserError as error:
            raise UserError(f"{row.place}: {error}") from error
        if not origins:
            raise UserError(f"{row.place}: the row has no figure, {{PATH}}, so nothing says which command made it")
        numbers = dict.fromkeys(made_by.setdefault(text, len(made_by) + 1) for text in origins)
        grid.append([*cells, ", ".join(map(str, numbers))])
    if not rows:  # `*` stands for none
        return ["No results yet."]
    if len(made_by) == 1:
        return [*(_line(cells[:-1]) for cells in grid), "", f"Made by {next(iter(made_by))}."]
    listed = [f"{number}. {text}" for text, number in made_by.items()]
    return [*map(_line, grid), "", "<details><summary>Made by</summary>", "", *listed, "</details>"]


def read_description(file: Path, files: ResultFiles) -> tuple[list[str], list[Row]]:
    """Read the description of a table.

    Args:
        file: The YAML file.
        files: The result files. A row with ``*`` in its path stands for all entries that have no row of their own.

    Returns:
        The titles of the columns, and the rows.

    Raises:
        UserError: If it is wrong, with file and line.
    """
    read_mapping(file, EXAMPLE)
    root = yaml.compose(read_text(file), Loader)
    assert root is not None
    entries = _entries(root, file, {"columns", "rows"}, {"from"})
    columns = [_column(node, file) for node in _items(entries["columns"], file, "columns")]
    base = _start(entries, (), file)
    rows = [_row(node, file, base, [cell for _, cell in columns]) for node in _items(entries["rows"], file, "rows")]
    own = {row.start for row in rows}
    return [title for title, _ in columns], [each for row in rows for each in _expanded(row, own, files)]


def _column(node: yaml.Node, file: Path) -> tuple[str, str]:
    """Return the title of a column, and the text of its cells where a row says nothing else."""
    if isinstance(node, yaml.ScalarNode):
        return node.value, ""
    if isinstance(node, yaml.MappingNode) and len(node.value) == 1:
        (title, cell), *_ = node.value
        if isinstance(cell, yaml.ScalarNode):
            return title.value, cell.value
    what = "a title, or a title with the text of its cells, such as 'mean: \"{mean | .3f}\"'"
    raise UserError(f"{_place(file, node)}: columns: each is {what}")


def _row(node: yaml.Node, file: Path, base: Steps, columns: list[str]) -> Row:
    """Read a row; cells that it leaves out are those of the columns."""
    entries = _entries(node, file, set(), {"from", "cells"})
    cells = list(columns)
    given = _items(entries["cells"], file, "cells") if "cells" in entries else []
    if len(given) > len(columns):
        raise UserError(f"{_place(file, node)}: cells: there are {len(given)} for {len(columns)} columns")
    for number, cell in enumerate(given):
        if not isinstance(cell, yaml.ScalarNode):
            raise UserError(f"{_place(file, cell)}: cells: each is a text; quote it if it begins with a brace")
        if not cell.tag.endswith(":null"):
            cells[number] = cell.value
    return Row(_place(file, node), _start(entries, base, file), cells)


def _start(entries: dict[str, yaml.Node], base: Steps, file: Path) -> Steps:
    """Return the path that ``from`` names, or that of the whole table."""
    node = entries.get("from")
    if node is None:
        return base
    if not isinstance(node, yaml.ScalarNode):
        raise UserError(f"{_place(file, node)}: from: it needs a path, such as tables.json > results")
    try:
        return steps_of(node.value, base)
    except UserError as error:
        raise UserError(f"{_place(file, node)}: from: {error}") from error


def _expanded(row: Row, own: set[Steps], files: ResultFiles) -> Iterator[Row]:
    """Yield a row, or those that the ``*`` in its path stands for."""
    try:
        for start in files.expand(row.start):
            if start == row.start or start not in own:
                yield row._replace(start=start)
    except UserError as error:
        raise UserError(f"{row.place}: from: {error}") from error


def _filled(cell: str, start: Steps, files: ResultFiles) -> tuple[str, list[Steps]]:
    """Return a cell with its figures, and their paths."""
    used: list[Steps] = []

    def fill(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        if found[1] is None:
            raise UserError(f"a brace in '{cell}' has no partner; write {{{{ or }}}} for the character itself")
        path, _, form = found[1].partition(" | ")
        used.append(steps_of(path, start))
        try:
            return figure(files.value(used[-1]), form)
        except ValueError as error:
            raise UserError(f"{{{found[1]}}}: {error}") from error

    return " ".join(BRACES.sub(fill, cell).split()), used


def _entries(node: yaml.Node, file: Path, needed: set[str], others: set[str]) -> dict[str, yaml.Node]:
    """Return the values of a mapping by key."""
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{_place(file, node)}: it needs keys and values, as in {EXAMPLE}")
    for key, _ in node.value:
        if key.value not in needed | others:
            hint = nearest(key.value, needed | others, f"; there are {', '.join(sorted(needed | others))}")
            raise UserError(f"{_place(file, key)}: there is no '{key.value}'{hint}")
    entries = {key.value: value for key, value in node.value}
    for key in sorted(needed - entries.keys()):
        raise UserError(f"{file}: {key}: it is missing; such as {EXAMPLE}")
    return entries


def _items(node: yaml.Node, file: Path, key: str) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise UserError(f"{_place(file, node)}: {key}: it needs a list, such as {EXAMPLE}")
    return node.value


def _place(file: Path, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}"


def _line(cells: list[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return "|" + "|".join(f" {cell} " if cell else " " for cell in escaped) + "|"
