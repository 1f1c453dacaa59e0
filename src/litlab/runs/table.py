"""``python -m PACKAGE runs``: the table of runs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from litlab.errors import UserError, printable
from litlab.runs.find import all_runs, experiment_of, name_in
from litlab.runs.folder import ROOT, RunFolder, get_entry, read_json
from litlab.util import results
from litlab.util.options import Options, answer, count
from litlab.util.spread import plus_minus
from litlab.util.text import decimals, nearest, terminal

STATUSES = ("running", "finished", "failed", "interrupted", "killed", "unknown")
# What is shown of a run's files. An entry of another type is as good as missing.
ENTRIES = {
    "status": str, "members": str, "reason": str, "started": str, "ended": str, "best": dict, "val": dict, "test": dict,
    "deviation": dict, "epochs": float, "steps": float, "seconds": float, "peak_memory_gib": float,
    "generated_data": bool, "commit": str, "dirty": bool, "command": list,
}  # fmt: skip
HEADER = ("run", "status", "best", "test", "min", "GiB", "started", "commit")
DESCRIPTION = """\
List the runs in lightning_logs, the newest first: how each ended, its best validation metric and the
corresponding test metric, minutes, peak memory in GiB, when it was started, and the commit of its code
(with * where the code had uncommitted changes). The runs of `fit --seeds` and `fit --folds` are one row,
with the mean and standard deviation of their metrics and the sum of their minutes.

  %(prog)s                          all runs
  %(prog)s mine --sort test/acc     those of one experiment, the best first
  %(prog)s mine/seeds_0             each run of these seeds
  %(prog)s --status failed          with the reason of each
"""


def main(arguments: list[str]) -> int:
    return answer(_list_runs, arguments)


def _list_runs(arguments: list[str]) -> int:
    options = Options("runs", DESCRIPTION)
    options.add_argument("experiment", nargs="*", metavar="EXPERIMENT", help="only runs of these experiments")
    options.add_argument("--status", choices=STATUSES, help="only runs with this status")
    options.add_argument("--sort", metavar="METRIC", help="best first by a metric, such as val/acc or test/loss")
    options.add_argument("--limit", metavar="N", type=count, help="show only the first N")
    options.add_argument("--json", action="store_true", help="print all details as a JSON list")
    options.add_argument("--root", metavar="DIR", type=Path, default=ROOT, help="where the runs are (%(default)s)")
    chosen = options.parse_args(arguments)

    rows = [describe(run, chosen.root) for run in _select(chosen.root, chosen.experiment)]
    if chosen.status:
        rows = [row for row in rows if row["status"].rstrip("?") == chosen.status]
    if chosen.sort and rows:
        rows = _sort(rows, chosen.sort)
    rows = rows[: chosen.limit]

    if chosen.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        further = [chosen.sort] if chosen.sort else []
        show_table([*HEADER, *further], [_cells(row, further) for row in rows])
        print(*map(printable, _remarks(rows)), sep="\n")
    else:
        print(f"There are no {'such ' if chosen.status else ''}runs in {chosen.root}")
    return 0


def _select(root: Path, experiments: list[str]) -> list[RunFolder]:
    """Return the runs of some experiments, or all; a group stands for its runs unless it is named."""
    selected: list[RunFolder] = []
    for name in experiments or [str(root)]:
        runs = all_runs(root / name_in(root, Path(name)), groups=True)
        if not runs and experiments:
            known = {name_in(root, experiment_of(run)) for run in all_runs(root)}
            hint = nearest(name, known, f"; there are {', '.join(sorted(known)) or 'none yet'}")
            raise UserError(f"runs: {root} has no experiment '{name}'{hint}")
        selected += runs
    return selected


def describe(run: RunFolder, root: Path = ROOT) -> dict[str, Any]:
    """Describe a run, or a group, in plain data.

    Args:
        run: The run. What its files lack is null; those that can't be read are named in ``problems``.
        root: Where the runs are.
    """
    content: dict[str, Any] = {}
    problems: list[str] = []
    for read in (lambda: read_json(run.provenance), run.state, lambda: read_json(run.metrics)):
        try:
            content |= read()
        except UserError as error:
            problems.append(str(error))
    row = {name: get_entry(content, kind, name) for name, kind in ENTRIES.items()}
    for part in ("val", "test", "deviation"):
        row[part] = {name: value for name, value in (row[part] or {}).items() if get_entry(value, float) is not None}
    if not get_entry(row["best"], str, "monitor") or get_entry(row["best"], float, "value") is None:
        row["best"] = None
    row |= {"status": row["status"] or "unknown", "started": run.when().isoformat(timespec="seconds")}
    return {"run": name_in(root, run.path), "path": str(run.path), **row, "problems": problems}


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

    from litlab.util.tables import Fitted

    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", header_style="bold")
    for name in header:
        table.add_column(Text(printable(name)))
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
    terminal().print(Fitted(table))


def _cells(row: dict[str, Any], further: list[str]) -> Iterator[str]:
    yield row["run"]
    yield f"{row['members']}, {row['status']}" if row["members"] else row["status"]
    mark = "~" if row["generated_data"] else ""
    pairs: tuple[Any, ...] = (row["best"] and (row["best"]["monitor"], row["best"]["value"]), results.of_test(row))
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
    return "-" if value is None else plus_minus(value, row["deviation"].get(name))


def _remarks(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what the table has no room for."""
    yield from (f"{row['run']} {row['status']}: {row['reason']}" for row in rows if row["reason"])
    if any(row["generated_data"] for row in rows):
        yield "~ on generated data: says nothing about the real data"
    if any(row["dirty"] for row in rows):
        yield "* the code had changes that were not committed"
    for row in rows:
        yield from (f"warning: {problem}" for problem in row["problems"])
