"""``python -m PACKAGE compare``: how runs differ."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from litlab.runs import results
from litlab.runs.find import RUN_HELP, find_run
from litlab.runs.results import find_differences, flatten, format_value
from litlab.runs.table import describe_run, format_metric, print_problems, show_table
from litlab.util.options import Options
from litlab.util.text import decimals
from litlab.util.yaml import read_mapping

DESCRIPTION = """\
Compare runs side by side: the settings that differ, all metrics, and the commit, versions, hardware
and data where they differ. The runs of `fit --seeds` are one column, with mean and standard
deviation.

  %(prog)s mine/version_3 mine/version_4
  %(prog)s mine other                  the newest run of each experiment
  %(prog)s mine/seeds_0 mine/seeds_1   all seeds of each
"""
# What a run has cost, in the table of metrics; then what of its origin is compared.
COSTS = ("epochs", "steps", "seconds", "peak_memory_gib", "generated_data")
ORIGIN = ("commit", "dirty", "uncommitted", "seed", "data", "versions", "hardware")


def main(arguments: list[str]) -> int:
    options = Options("compare", DESCRIPTION)
    options.add_argument(
        "run", nargs="+", metavar="RUN", help=f"{RUN_HELP}, or a group of seeds or folds"
    )
    # A group is one column, with means; the others are single runs
    folders = [find_run(text, groups=True) for text in options.parse_args(arguments).run]
    names = [folder.name for folder in folders]

    # From the config files as they are: neither the code nor its packages are needed
    settings = [flatten(read_mapping(folder.config)) for folder in folders]
    show_settings(names, settings, "Settings that differ")
    runs = [describe_run(folder) for folder in folders]
    show_table(["", *names], compare_metrics(runs), "\nMetrics")
    show_settings(names, list(map(flatten_origin, runs)), "\nMade from")
    print_problems(runs)
    return 0


def show_settings(names: list[str], settings: list[dict[str, Any]], title: str) -> None:
    """Print a table of what has a dotted key and is not the same in all runs."""
    different = find_differences(settings)
    rows = [[key, *map(format_value, values)] for key, values in different.items()]
    show_table(["", *names], rows or [["the same"]], title)


def flatten_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Return what a run is made from by dotted key, without its time and command, which always
    differ.
    """
    return flatten({name: origin[name] for name in ORIGIN if name in origin})


def compare_metrics(runs: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield a row for each metric, and for each of what the runs cost."""
    # In the order of the first run, then what only later ones have
    for name in dict.fromkeys(chain(*map(results.pick_metrics, runs))):
        yield [name, *(format_metric(run, name) for run in runs)]
    for name in COSTS:
        values = [run.get(name) for run in runs]
        yield [name, *(decimals(v) if isinstance(v, float) else format_value(v) for v in values)]
