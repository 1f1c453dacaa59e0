"""``python -m PACKAGE compare``: how runs differ, and which was better."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litlab.errors import UserError, printable
from litlab.runs.find import RUN_HELP, find_run
from litlab.runs.folder import ROOT, RunFolder, read_json
from litlab.runs.settings import differences, flatten, format_value, read_config
from litlab.runs.table import describe, format_metric
from litlab.util import metric_direction as metric
from litlab.util.options import Options, answer
from litlab.util.text import decimals, terminal

if TYPE_CHECKING:
    from rich.table import Table

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
    options.add_argument("--root", metavar="DIR", type=Path, default=ROOT, help="where the runs are (%(default)s)")
    chosen = options.parse_args(arguments)
    runs = [find_run(text, chosen.root, groups=True) for text in chosen.run]
    if len({run.path.resolve() for run in runs}) < 2:
        raise UserError(f"compare: {' and '.join(chosen.run)}: that is one run; give two or more")

    names = [run.name for run in runs]
    settings = _read(runs, lambda run: flatten(read_config(run.config)))
    origins = _read(runs, lambda run: flatten_origin(read_json(run.provenance)))
    parts = {
        "Settings": make_table("Settings", names, differences(settings)),
        "Metrics": compare_metrics(names, [describe(run, chosen.root) for run in runs]),
        "Origins": make_table("Made from", names, differences(origins)),
    }
    from litlab.util.tables import Fitted

    for name, table in parts.items():
        terminal().print(Fitted(table) if table.row_count else f"{name}: no difference", "")
    return 0


def _read(runs: list[RunFolder], read: Callable[[RunFolder], dict[str, Any]]) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    for run in runs:
        try:
            contents.append(read(run))
        except UserError as error:
            print(f"warning: {error}")
            contents.append({})
    return contents


def flatten_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Return what a run is made from by dotted key, without its time and command, which are always its own."""
    return flatten({name: origin[name] for name in ORIGIN if name in origin})


def make_table(title: str, names: Sequence[str], rows: dict[str, list[Any]]) -> "Table":
    """Build a table with one column per run."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for name in ("", *names):
        table.add_column(Text(printable(name)), overflow="fold")
    for key, values in rows.items():
        cells = [value if isinstance(value, Text) else Text(printable(format_value(value))) for value in values]
        table.add_row(Text(printable(key)), *cells)
    return table


def compare_metrics(names: Sequence[str], rows: list[dict[str, Any]]) -> "Table":
    """Build the table of metrics, the best value of each in bold, and of what the runs cost."""
    from rich.text import Text

    metrics = [metric.values(row) for row in rows]
    cells: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for values in metrics for name in values):
        values = [values.get(name) for values in metrics]
        direction = metric.direction(name, rows)
        known = sorted({value for value in values if value is not None}, key=lambda value: -direction * value)
        best = known[0] if direction and len(known) > 1 else None
        texts = [format_metric(row, name, value) for row, value in zip(rows, values, strict=True)]
        styles = ["bold green" if value is not None and value == best else "" for value in values]
        cells[name] = [Text(text, style) for text, style in zip(texts, styles, strict=True)]
    cells |= {name: [decimals(row[name]) for row in rows] for name in COSTS}
    if any(row["generated_data"] for row in rows):
        cells["generated data"] = ["yes: not real" if row["generated_data"] else "-" for row in rows]
    return make_table("Metrics", names, cells)
