"""``python -m PACKAGE runs``: the table of runs."""

import json
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from litlab.errors import UserError, printable
from litlab.runs import results
from litlab.runs.find import find_run, list_runs
from litlab.runs.folder import ROOT, RunFolder, read_or_note, read_record
from litlab.util.options import Options
from litlab.util.text import nearest, print_table

HEADER = ("run", "status", "best", "test", "  min", "started", "commit")
DESCRIPTION = """\
List the runs in lightning_logs, the newest first: how each ended, its best validation metric and
the corresponding test metric, minutes, when it was started, and the commit of its code (with *
where the code had uncommitted changes). The runs of `fit --seeds` and `fit --folds` are one row,
with the mean and standard deviation of their metrics and the sum of their minutes. A terminal with
fewer than 100 columns shows neither start nor commit.

  %(prog)s                          all runs
  %(prog)s mine --sort test/acc     those of one experiment, the best first
  %(prog)s mine/seeds_0             each run of these seeds
"""


def main(arguments: list[str]) -> int:
    options = Options("runs", DESCRIPTION)
    options.add_argument(
        "experiment", nargs="?", default="", metavar="EXPERIMENT", help="only its runs"
    )
    options.add_argument(
        "--sort", metavar="METRIC", help="best first by a metric, such as val/acc or test/loss"
    )
    options.add_argument("--json", action="store_true", help="print all details as a JSON list")
    chosen = options.parse_args(arguments)

    # An experiment or a group; of one run its row alone
    folders = list_runs(ROOT / chosen.experiment.removeprefix(f"{ROOT}/"), groups=True)
    if not folders and chosen.experiment:
        folders = [find_run(chosen.experiment)]  # which says what there is
    runs = [describe_run(folder) for folder in folders]
    if chosen.sort:
        runs = _sort(runs, chosen.sort)

    if chosen.json:
        print(json.dumps(runs, indent=2))
    elif runs:
        # Those of a sweep are many, and have a table of their own
        shown = [run for run in runs if chosen.experiment or not run["run"].startswith("sweeps/")]
        # A narrow terminal has no room for when it was started and its commit
        count = len(HEADER) - 2 * (shutil.get_terminal_size((160, 24)).columns < 100)
        pairs = zip(shown, format_metrics(shown), strict=True)
        cells = [[*_format_row(run, texts, chosen.sort)][:count] for run, texts in pairs]
        show_table(HEADER[:count], cells)

        # Below the table: what would not fit into a cell
        for run in shown:
            if run.get("reason"):
                location = ", ".join(
                    f"{name} {value}" for name, value in (run.get("place") or {}).items()
                )
                text = f"{run['run']}: {run['reason']}" + f" ({location})" * bool(location)
                print(printable(text))
        print_problems(shown)
        if len(shown) < len(runs):
            print(f"and {len(runs) - len(shown)} of sweeps, which `runs sweeps` lists")
    else:
        print(f"There are no runs in {ROOT}")
    return 0


def describe_run(run: RunFolder) -> dict[str, Any]:
    """Return what the files of a run or a group say, together, and their ``problems``."""
    # Those that train on made-up data leave this file; of a group: one of its runs
    is_generated = any(run.path.rglob("GENERATED_DATA.txt"))
    content: dict[str, Any] = {"status": "unknown"}
    problems: list[str] = []
    # What can't be read is noted, so that the other runs of a table are shown. The status comes
    # after the provenance: `started` is that of the newest fit
    content |= read_or_note(problems, read_record, run.provenance)
    content |= read_or_note(problems, run.read_state)
    content |= read_or_note(problems, read_record, run.metrics)
    # Ours last, whatever keys the files of somebody else have
    named = {"run": run.name, "path": str(run.path), "generated_data": is_generated}
    return content | named | {"problems": problems}


def print_problems(runs: Iterable[dict[str, Any]]) -> None:
    for problem in chain(*(run["problems"] for run in runs)):
        print(problem)


def _sort(runs: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    names = set(chain(*map(results.pick_metrics, runs)))
    if name not in names:
        hint = nearest(name, names, f"; there are {', '.join(sorted(names)) or 'none'}")
        raise UserError(f"runs: --sort: no run has a metric '{name}'{hint}")
    # Runs without the metric come last, whichever is better
    sign = results.find_direction(name, runs) or 1
    return sorted(
        runs,
        key=lambda run: sign * results.pick_metrics(run).get(name, -sign * math.inf),
        reverse=True,
    )


def show_table(header: Sequence[str], rows: Iterable[Iterable[str]], title: str = "") -> None:
    """Print a table. Its cells may come from files of others: what could control the terminal is
        escaped.

    Args:
        header: The names of the columns.
        rows: The cells.
        title: What stands above it.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        pad_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
    )
    for name in header:
        table.add_column(Text(printable(name)))
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    print_table(table)


def _format_row(run: dict[str, Any], texts: dict[str, str], metric: str | None) -> Iterator[str]:
    """Yield the cells of a run, in the order of `HEADER`.

    Args:
        run: What its files say.
        texts: Its metrics, as `format_metrics` writes them.
        metric: The metric to show in place of the one that chose the checkpoint.
    """
    yield run["run"]
    # A group says how many of its fits are finished
    status = f"{run['members']}, {run['status']}" if "members" in run else run["status"]
    status += ", generated" * run["generated_data"]
    yield status + ", a file is damaged" * bool(run["problems"])

    # The metric that chose the checkpoint, or that of --sort; and that of the test that belongs to
    # it, whose name is left out where it is the same: val/acc 0.91, 0.90
    best, test = metric or (run.get("best") or {}).get("monitor"), results.choose_test_metric(run)
    yield f"{best} {texts.get(best, '-')}" if best else "-"
    is_same = best and test and best.partition("/")[2] == test.partition("/")[2]
    yield f"{'' if is_same else f'{test} '}{texts.get(test, '-')}" if test else "-"

    yield f"{(run.get('seconds') or 0) / 60:5.1f}"
    # By this machine's clock, whatever the zone of the one that it ran on
    start = run.get("started")
    yield f"{datetime.fromisoformat(start).astimezone():%m-%d %H:%M}" if start else "-"
    yield (run.get("commit") or "-")[:7] + ("*" if run.get("dirty") else "")


def format_metrics(runs: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the metrics of each run by name as tables show them, of a group with their standard
    deviations; a dash for those that a run lacks.
    """
    found = [results.pick_metrics(run) for run in runs]
    columns = {
        name: results.format_means(
            [metrics.get(name) for metrics in found],
            [(run.get("deviation") or {}).get(name) for run in runs],
        )
        for name in dict.fromkeys(chain(*found))
    }
    return [{name: texts[at] for name, texts in columns.items()} for at in range(len(runs))]
