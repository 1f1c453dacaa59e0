"""``python -m PACKAGE compare``: how runs differ."""

from collections.abc import Iterator, Sequence
from typing import Any

from litlab.runs.find import RUN_HELP, find_run
from litlab.runs.results import find_differences, flatten, format_value
from litlab.runs.table import describe_run, format_metrics, print_problems, show_table
from litlab.util.options import Options
from litlab.util.yaml import read_mapping

DESCRIPTION = """\
Compare runs side by side: the settings that differ, all metrics, and the commit, versions, hardware
and data where they differ. The runs of `fit --seeds` are one column, with mean and standard
deviation.

  %(prog)s mine/version_3 mine/version_4
  %(prog)s mine other                  the newest run of each experiment
  %(prog)s mine/seeds_0 mine/seeds_1   all seeds of each
"""
# What of a run's origin is compared.
ORIGIN = ("commit", "dirty", "uncommitted", "seed", "data", "versions", "hardware")
# Of keys whose own words don't say it
WORDS = {
    "dirty": "uncommitted",
    "uncommitted.file": "uncommitted changes",
    "hardware.ranks": "processes",
}


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
    show_settings(names, list(map(flatten_origin, runs)), "\nCode, data and machines that differ")
    print_problems(runs)
    return 0


def show_settings(names: list[str], settings: list[dict[str, Any]], title: str) -> None:
    """Print a table of what has a dotted key and is not the same in all runs."""
    different = find_differences(settings)
    if not different:
        print(f"{title}: none")
        return
    rows = [[key, *map(format_value, values)] for key, values in different.items()]
    show_table(["", *names], rows, title)


def flatten_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Return what a run is made from, each fact under its name in words, without its time and
    command, which always differ.
    """
    flat = flatten({name: origin[name] for name in ORIGIN if name in origin})
    return {WORDS.get(key, _name_fact(key)): value for key, value in flat.items()}


def _name_fact(key: str) -> str:
    """Return ``torch`` of versions.torch, and ``device name`` of hardware.device_name."""
    name = key.removeprefix("versions.").removeprefix("hardware.")
    return name.replace(".", " ").replace("_", " ")


def describe_costs(runs: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return what each run cost, by the name of the cost; a dash where it is not known.

    Args:
        runs: The content of their ``metrics.json``.
    """

    def column(name: str, unit: float, form: str) -> list[str]:
        values = [run.get(name) for run in runs]
        return ["-" if value is None else form.format(value / unit) for value in values]

    return {
        "epochs": column("epochs", 1, "{:.0f}"),
        "steps": column("steps", 1, "{:.0f}"),
        "minutes": column("seconds", 60, "{:.2f}"),
        "peak memory": column("peak_memory_gib", 1, "{:.2f} GiB"),
    }


def compare_metrics(runs: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield a row for each metric, and for each of what the runs cost."""
    texts = format_metrics(runs)
    for name in texts[0]:
        yield [name, *(text[name] for text in texts)]
    for name, cells in describe_costs(runs).items():
        yield [name, *cells]
    yield ["generated data", *(format_value(run.get("generated_data")) for run in runs)]
