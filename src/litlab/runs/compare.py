"""``python -m PACKAGE compare``: how runs differ."""

from collections.abc import Iterator
from typing import Any

from litlab.runs.find import RUN_HELP, find_run
from litlab.runs.results import find_differences, flatten, format_value
from litlab.runs.table import describe_run, format_metrics, print_problems, show_table
from litlab.util.options import Options
from litlab.util.text import format_column
from litlab.util.yaml import read_mapping

DESCRIPTION = """\
Compare runs side by side: the settings that differ, all metrics, and the commit, versions, hardware
and data where they differ. The runs of `fit --seeds` are one column, with mean and standard
deviation.

  %(prog)s mine/version_3 mine/version_4
  %(prog)s mine other                  the newest run of each experiment
  %(prog)s mine/seeds_0 mine/seeds_1   all seeds of each
"""
COSTS = ("epochs", "steps", "seconds", "peak_memory_gib", "generated_data")
ORIGIN = ("commit", "dirty", "uncommitted", "seed", "data", "versions", "hardware")


def main(arguments: list[str]) -> int:
    options = Options("compare", DESCRIPTION)
    options.add_argument(
        "run", nargs="+", metavar="RUN", help=f"{RUN_HELP}, or a group of seeds or folds"
    )
    # A group is one column, with means; the others are single runs
    runs = [find_run(text, groups=True) for text in options.parse_args(arguments).run]
    names = [run.name for run in runs]
    rows = [describe_run(run) for run in runs]
    show_settings(
        names, [flatten(read_mapping(run.config)) for run in runs], "Settings that differ"
    )
    show_table(["", *names], compare_metrics(rows), "\nMetrics")
    show_settings(names, list(map(flatten_origin, rows)), "\nMade from")
    print_problems(rows)
    return 0


def show_settings(names: list[str], settings: list[dict[str, Any]], title: str) -> None:
    """Print a table of what has a dotted key and is not the same in all runs."""
    rows = [[key, *map(format_value, values)] for key, values in find_differences(settings).items()]
    show_table(["", *names], rows or [["the same"]], title)


def flatten_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Return what a run is made from by dotted key, without its time and command, which are always
    its own.
    """
    return flatten({name: origin[name] for name in ORIGIN if name in origin})


def compare_metrics(runs: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield a row for each metric, and for each of what the runs cost."""
    texts = format_metrics(runs)
    for name in texts[0]:
        yield [name, *(text[name] for text in texts)]
    for name in COSTS:
        values = [run.get(name) for run in runs]
        is_measured = any(isinstance(value, float) for value in values)
        yield [name, *(format_column(values) if is_measured else map(format_value, values))]
