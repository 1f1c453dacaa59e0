"""``python -m PACKAGE runs``: the table of runs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from litlab.errors import UserError, printable
from litlab.runs import results
from litlab.runs.find import all_runs, find_run
from litlab.runs.folder import ROOT, RunFolder, read_json
from litlab.util.options import Options, answer
from litlab.util.text import decimals, nearest, print_table

DETAILS = (
    "status", "members", "reason", "started", "ended", "best", "val", "test", "deviation", "epochs", "steps", "seconds",
    "peak_memory_gib", "generated_data", "commit", "dirty", "command",
)  # fmt: skip
HEADER = ("run", "status", "best", "test", "min", "GiB", "started", "commit")
DESCRIPTION = """\
List the runs in lightning_logs, the newest first: how each ended, its best validation metric and the
corresponding test metric, minutes, peak memory in GiB, when it was started, and the commit of its code
(with * where the code had uncommitted changes). The runs of `fit --seeds` and `fit --folds` are one row,
with the mean and standard deviation of their metrics and the sum of their minutes.

  %(prog)s                          all runs
  %(prog)s mine --sort test/acc     those of one experiment, the best first
  %(prog)s mine/seeds_0             each run of these seeds
"""


def main(arguments: list[str]) -> int:
    return answer(_list_runs, arguments)


def _list_runs(arguments: list[str]) -> int:
    options = Options("runs", DESCRIPTION)
    options.add_argument("experiment", nargs="*", metavar="EXPERIMENT", help="only runs of these experiments")
    options.add_argument("--sort", metavar="METRIC", help="best first by a metric, such as val/acc or test/loss")
    options.add_argument("--json", action="store_true", help="print all details as a JSON list")
    chosen = options.parse_args(arguments)

    rows = [describe(run) for run in _select(chosen.experiment)]
    if chosen.sort and rows:
        rows = _sort(rows, chosen.sort)

    if chosen.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        further = [chosen.sort] if chosen.sort else []
        show_table([*HEADER, *further], [_cells(row, further) for row in rows])
        print(*map(printable, _remarks(rows)), sep="\n")
    else:
        print(f"There are no runs in {ROOT}")
    return 0


def _select(experiments: list[str]) -> list[RunFolder]:
    """Return the runs of some experiments, or all; a group stands for its runs unless it is named."""
    if not experiments:
        return all_runs(groups=True)
    selected: list[RunFolder] = []
    for name in experiments:
        runs = all_runs(ROOT / name.removeprefix(f"{ROOT}/"), groups=True)
        selected += runs or [find_run(name)]  # which says what there is
    return selected


def describe(run: RunFolder) -> dict[str, Any]:
    """Describe a run, or a group, in plain data.

    Args:
        run: The run. What its files lack is null; those that can't be read are named in ``problems``.
    """
    content: dict[str, Any] = {"status": "unknown"}
    problems: list[str] = []
    for read in (lambda: read_json(run.provenance), run.state, lambda: read_json(run.metrics)):
        try:
            content |= read()
        except UserError as error:
            problems.append(str(error))
    content["started"] = run.when().isoformat(timespec="seconds")
    details = {name: content.get(name) for name in DETAILS}
    return {"run": run.name, "path": str(run.path), **details, "problems": problems}


def _sort(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    known = {known for row in rows for known in results.values(row)}
    if name not in known:
        hint = nearest(name, known, f"; there are {', '.join(sorted(known)) or 'none'}")
        raise UserError(f"runs: --sort: no run has a metric '{name}'{hint}")
    sign = -results.direction(name, rows) or -1
    return sorted(rows, key=lambda row: sign * results.values(row).get(name, sign * float("inf")))


def show_table(header: Sequence[str], rows: Iterable[Iterable[Any]], title: str = "") -> None:
    """Print a table. Its cells may come from files of others: what could control the terminal is escaped.

    Args:
        header: The names of the columns.
        rows: The cells, texts or `rich.text.Text`.
        title: What stands above it.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", header_style="bold")
    for name in header:
        table.add_column(Text(printable(name)))
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
    print_table(table)


def _cells(row: dict[str, Any], further: list[str]) -> Iterator[str]:
    yield row["run"]
    yield f"{row['members']}, {row['status']}" if row["members"] else row["status"]
    best, mark = row["best"], "~" if row["generated_data"] else ""
    pairs: tuple[Any, ...] = (best and (best["monitor"], best["value"]), results.of_test(row))
    for pair in pairs:
        yield f"{pair[0]} {mark}{format_metric(row, *pair)}" if pair else "-"
    yield decimals(row["seconds"] and row["seconds"] / 60)
    yield decimals(row["peak_memory_gib"])
    yield datetime.fromisoformat(row["started"]).strftime("%Y-%m-%d %H:%M")
    yield (row["commit"] or "-")[:7] + ("*" if row["dirty"] else "")
    for name in further:
        yield format_metric(row, name, results.values(row).get(name))


def format_metric(row: dict[str, Any], name: str, value: float | None) -> str:
    """Return the value of a metric as tables show it, of a group with its standard deviation."""
    return "-" if value is None else results.plus_minus(value, (row["deviation"] or {}).get(name))


def _remarks(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what the table has no room for."""
    yield from (f"{row['run']} {row['status']}: {row['reason']}" for row in rows if row["reason"])
    if any(row["generated_data"] for row in rows):
        yield "~ on generated data: says nothing about the real data"
    if any(row["dirty"] for row in rows):
        yield "* the code had changes that were not committed"
    for row in rows:
        yield from (f"warning: {problem}" for problem in row["problems"])
