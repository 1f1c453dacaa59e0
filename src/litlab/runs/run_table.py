"""``python -m PACKAGE runs``: the table of runs."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litlab.errors import UserError
from litlab.runs.find import all_runs, relative_name
from litlab.runs.folder import ROOT, RunFolder, read_json, read_or_note
from litlab.runs.provenance import is_generated
from litlab.runs.seed_group import SeedGroup, experiment_of, group_of, group_row
from litlab.util import metric_direction as metric
from litlab.util.options import Options, answer, count
from litlab.util.spread import plus_minus
from litlab.util.text import decimals, nearest, terminal

if TYPE_CHECKING:
    from rich.table import Table

STATUSES = ("running", "finished", "failed", "interrupted", "killed", "unknown")
COLOURS = {"finished": "green", "failed": "red", "killed": "red", "interrupted": "yellow", "running": "cyan"}
DESCRIPTION = """\
List the runs in lightning_logs, the newest first: how each ended, its best validation metric and the
corresponding test metric, minutes, peak memory in GiB, when it was started, and the commit of its code
(with * where the code had uncommitted changes). The runs of `fit --seeds` are one row, with the mean and
standard deviation of their metrics and the sum of their minutes.

  %(prog)s                          all runs
  %(prog)s mine --sort test/acc     those of one experiment, the best first
  %(prog)s mine/seeds_0             each run of these seeds
  %(prog)s --status failed          with the reason of each
"""


def main(arguments: list[str]) -> int:
    """Run the command ``runs`` and return its exit code: 0, or 2 after one line on what is wrong."""
    return answer(_runs, arguments)


def _runs(arguments: list[str]) -> int:
    options = Options("runs", DESCRIPTION)
    options.add_argument("experiment", nargs="*", metavar="EXPERIMENT", help="only runs of these experiments")
    options.add_argument("--status", choices=STATUSES, help="only runs with this status")
    options.add_argument("--sort", metavar="METRIC", help="best first by a metric, such as val/acc or test/loss")
    options.add_argument("--limit", metavar="N", type=count, help="show only the first N")
    options.add_argument("--json", action="store_true", help="print all details as a JSON list")
    options.add_argument("--root", metavar="DIR", type=Path, default=ROOT, help="where the runs are (%(default)s)")
    chosen = options.parse_args(arguments)

    folders = all_runs(chosen.root)
    named = [relative_name(chosen.root, name) for name in chosen.experiment]
    if named:
        folders = list(_of_experiments(folders, named, chosen.root))
    rows = list(_rows(folders, named, chosen.root))
    if chosen.status:
        rows = [row for row in rows if row["status"].rstrip("?") == chosen.status]
    if chosen.sort and rows:
        rows = _sorted(rows, chosen.sort)
    rows = rows[: chosen.limit]

    if chosen.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif not rows:
        some = "such " if folders or chosen.experiment else ""
        print(f"There are no {some}runs in {chosen.root}{'' if some else ' yet'}.")
    else:
        from litlab.util.tables import Fitted

        terminal().print(Fitted(table(rows, chosen.sort)), *remarks(rows), sep="\n")
    return 0


def describe(folder: RunFolder, root: Path = ROOT) -> dict[str, Any]:
    """Describe a run.

    Args:
        folder: The run. The entries of a file that it lacks are null; damaged files are listed under ``problems``.
        root: Where the runs are.
    """
    problems: list[str] = []
    state = read_or_note(problems, folder.state)
    metrics, made = (read_or_note(problems, read_json, file) for file in (folder.metrics, folder.provenance))
    run = folder.path.relative_to(root).as_posix() if folder.path.is_relative_to(root) else folder.name
    return {
        "run": run,
        "path": str(folder.path),
        "experiment": run.rpartition("/")[0],
        "status": state.get("status", "unknown"),
        "reason": state.get("reason"),
        "started": folder.when().isoformat(timespec="seconds"),
        "ended": state.get("ended"),
        "seconds": metrics.get("seconds", state.get("seconds")),
        **{name: metrics.get(name) for name in ("best", "val", "test", "epochs", "steps", "peak_memory_gib")},
        "generated_data": is_generated(metrics, made),
        "commit": made.get("commit"),
        "dirty": made.get("dirty"),
        "command": made.get("command"),
        "seeds": None,
        "problems": problems,
    }


def describe_group(group: SeedGroup, root: Path = ROOT) -> dict[str, Any]:
    """Describe the runs of ``fit --seeds`` as `describe` does a run, with means over the seeds that are finished.

    Args:
        group: The group. Its ``seeds`` are those asked for and finished, the runs, and the metrics' deviations.
        root: Where the runs are.
    """
    try:
        runs = group.runs()
    except UserError:  # the row says so
        runs = {}
    return group_row(group, {seed: describe(run, root) for seed, run in runs.items()}, root)


def table(rows: list[dict[str, Any]], sort: str | None = None) -> "Table":
    """Build the table, one row per run or group of seeds.

    Args:
        rows: The runs and groups, as `describe` and `describe_group` return them.
        sort: A metric to show although no column has it.
    """
    from rich.table import Table
    from rich.text import Text

    now = datetime.now().astimezone()
    columns: dict[str, list[str | Text]] = {
        "run": [Text(row["run"]) for row in rows],
        "status": [Text(_status(row), style=COLOURS.get(row["status"].rstrip("?"), "")) for row in rows],
        "best": [_metric(row, _best(row)) for row in rows],
        "test": [_metric(row, metric.of_test(row)) for row in rows],
    }
    if sort and any(sort not in ((_best(row) or [""])[0], (metric.of_test(row) or [""])[0]) for row in rows):
        columns[sort] = [_value(row, sort, metric.values(row).get(sort)) for row in rows]
    columns |= {
        "min": [_minutes(row["seconds"]) for row in rows],
        "GiB": ["-" if row["peak_memory_gib"] is None else f"{row['peak_memory_gib']:.1f}" for row in rows],
        "when": [when(datetime.fromisoformat(row["started"]), now) for row in rows],
        "commit": [f"{(row['commit'] or '-')[:7]}{'*' if row['dirty'] else ''}" for row in rows],
    }
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        shown.add_column(Text(name), justify="right" if name in ("min", "GiB", sort) else "left")
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    return shown


def remarks(rows: list[dict[str, Any]]) -> Iterator[Any]:
    """Yield what the table has no room for: why runs failed, what ~ and * mean, which files are damaged."""
    from rich.text import Text

    for row in rows:
        if row["reason"]:
            yield Text(f"{row['run']} {row['status']}: {row['reason']}", style="dim")
    if any(row["generated_data"] for row in rows):
        yield Text("~ on generated data: says nothing about the real data.", style="dim")
    if any(row["dirty"] for row in rows):
        yield Text("* the code had changes that were not committed.", style="dim")
    for row in rows:
        yield from (Text(f"warning: {problem}", style="yellow") for problem in row["problems"])


def when(started: datetime, now: datetime) -> str:
    """Format when a run was started: how long ago for today's, the day and time for earlier ones."""
    seconds = (now - started).total_seconds()
    if 0 <= seconds < 60:
        return "just now"
    if 0 <= seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if 0 <= seconds < 12 * 3600:
        return f"{seconds // 3600:.0f} h ago"
    return started.strftime("%d %b %H:%M" if started.year == now.year else "%Y-%m-%d")


def _rows(folders: list[RunFolder], named: list[str], root: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table; a group of seeds is one, where its newest run is, unless the group was named."""
    shown: set[SeedGroup] = set()
    for folder in folders:
        group = group_of(folder)
        if group is None or any(_lies_in(name, group.path.relative_to(root).as_posix()) for name in named):
            yield describe(folder, root)
        elif group not in shown:
            shown.add(group)
            yield describe_group(group, root)


def _of_experiments(folders: list[RunFolder], wanted: list[str], root: Path) -> Iterator[RunFolder]:
    names = {folder: folder.path.relative_to(root).parent.as_posix() for folder in folders}
    for name in wanted:
        if not any(_lies_in(experiment, name) for experiment in names.values()):
            known = sorted({experiment_of(folder).relative_to(root).as_posix() for folder in folders})
            hint = nearest(name, sorted(set(names.values())), f": there are {', '.join(known) or 'none yet'}.")
            raise UserError(f"runs: {root} has no experiment '{name}'{hint}")
    return (folder for folder, experiment in names.items() if any(_lies_in(experiment, name) for name in wanted))


def _lies_in(experiment: str, name: str) -> bool:
    return experiment == name or experiment.startswith(f"{name}/")


def _sorted(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    known = {known for row in rows for known in metric.values(row)}
    if name not in known:
        hint = nearest(name, known, f": there are {', '.join(sorted(known)) or 'none'}.")
        raise UserError(f"runs: --sort: no run has a metric '{name}'{hint}")
    best_first = metric.direction(name, rows) or 1
    values = {row["run"]: metric.values(row)[name] for row in rows if name in metric.values(row)}
    having = sorted((row for row in rows if row["run"] in values), key=lambda row: -best_first * values[row["run"]])
    return having + [row for row in rows if row["run"] not in values]


def _best(row: dict[str, Any]) -> tuple[str, float | None] | None:
    return (row["best"]["monitor"], row["best"].get("value")) if row["best"] else None


def _metric(row: dict[str, Any], found: tuple[str, float | None] | None) -> str:
    return f"{found[0]} {'~' if row['generated_data'] else ''}{_value(row, *found)}" if found else "-"


def _value(row: dict[str, Any], name: str, value: float | None) -> str:
    deviation = (row["seeds"] or {"deviation": {}})["deviation"].get(name)
    return decimals(value) if value is None else plus_minus(value, deviation)


def _status(row: dict[str, Any]) -> str:
    if row["seeds"] is None:
        return row["status"]
    finished = f"{len(row['seeds']['finished'])} of {len(row['seeds']['asked'])}"
    return finished if row["status"] == "finished" else f"{finished}, {row['status']}"


def _minutes(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 60:.{1 if seconds >= 60 else 2}f}"
