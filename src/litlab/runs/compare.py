"""``python -m PACKAGE compare``: how runs differ, and which was better."""

import math
from collections.abc import Iterator
from typing import Any

from litlab.errors import UserError
from litlab.runs import results
from litlab.runs.find import RUN_HELP, find_run
from litlab.runs.folder import read_json
from litlab.runs.settings import differences, flatten, format_value, read_config
from litlab.runs.table import describe, format_metric, show_table
from litlab.util.options import Options, answer
from litlab.util.text import decimals

DESCRIPTION = """\
Compare runs side by side: the settings that differ, the metrics with the better value in bold, and the
commit, versions, hardware and data where they differ. The runs of `fit --seeds` are one column, with mean
and standard deviation.

  %(prog)s mine/version_3 mine/version_4
  %(prog)s mine other                  the newest run of each experiment
  %(prog)s mine/seeds_0 mine/seeds_1   all seeds of each
"""
COSTS = ("epochs", "steps", "seconds", "peak_memory_gib")
ORIGIN = ("commit", "dirty", "uncommitted", "seed", "data", "versions", "hardware")


def main(arguments: list[str]) -> int:
    return answer(_compare, arguments)


def _compare(arguments: list[str]) -> int:
    options = Options("compare", DESCRIPTION)
    options.add_argument("run", nargs="+", metavar="RUN", help=f"{RUN_HELP}, or a group of seeds or folds")
    chosen = options.parse_args(arguments)
    runs = [find_run(text, groups=True) for text in chosen.run]
    if len({run.path.resolve() for run in runs}) < 2:
        raise UserError(f"compare: {' and '.join(chosen.run)}: that is one run; give two or more")

    header = ["", *(run.name for run in runs)]
    settings = differences([flatten(read_config(run.config)) for run in runs])
    origins = differences([flatten_origin(read_json(run.provenance)) for run in runs])
    show_table(header, ([key, *map(format_value, values)] for key, values in settings.items()), "Settings that differ")
    show_table(header, compare_metrics([describe(run) for run in runs]), "\nMetrics")
    if origins:
        show_table(header, ([key, *map(format_value, values)] for key, values in origins.items()), "\nMade from")
    else:
        print("\nCode, versions, hardware and data are the same.")
    return 0


def flatten_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Return what a run is made from by dotted key, without its time and command, which are always its own."""
    return flatten({name: origin[name] for name in ORIGIN if name in origin})


def compare_metrics(runs: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Yield a row for each metric, its best value in bold, and for each of what the runs cost."""
    from rich.text import Text

    metrics = [results.values(run) for run in runs]
    for name in dict.fromkeys(name for values in metrics for name in values):
        values = [values.get(name) for values in metrics]
        known = [value for value in values if value is not None]
        direction = results.direction(name, runs)
        best = (max if direction > 0 else min)(known) if direction and len(set(known)) > 1 else math.nan
        styles = ["bold green" if value == best else "" for value in values]
        texts = [format_metric(run, name, value) for run, value in zip(runs, values, strict=True)]
        yield [name, *map(Text, texts, styles)]
    for name in COSTS:
        yield [name, *(decimals(run[name]) for run in runs)]
    if any(run["generated_data"] for run in runs):
        yield ["generated data", *("yes: not real" if run["generated_data"] else "-" for run in runs)]
