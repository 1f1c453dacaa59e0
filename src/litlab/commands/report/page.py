"""The page about one run, or about several side by side.

It is made of the files of the runs; none of their code is imported.
"""

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from markupsafe import Markup

from litlab.runs import results
from litlab.runs.compare import describe_costs, flatten_origin
from litlab.runs.folder import RunFolder, read_json, read_or_note
from litlab.runs.masking import mask
from litlab.runs.page import Section, encode, render_page, show
from litlab.runs.results import Curves, find_differences, flatten, format_value, read_curves
from litlab.runs.table import describe_run
from litlab.util import team
from litlab.util.text import format_column
from litlab.util.yaml import dump_config, read_mapping

STYLE: Any = {
    "svg.hashsalt": "litlab",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "savefig.transparent": True,  # the page's ground
    "grid.alpha": 0.3,
    "text.parse_math": False,  # names may hold a $, which would begin a formula
}
Line = tuple[str, Any, Any, str]  # label, x, y, and matplotlib's format such as "C0--"


def draw_lines(lines: Sequence[Line], x_label: str) -> str:
    """Return a drawing as an address that holds it as SVG, the same each time."""
    import matplotlib
    from matplotlib.figure import Figure

    stream = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        labels = [label for label, *_ in lines if label]
        figure = Figure(figsize=(4.4, 2.6 + 0.15 * len(labels)), layout="constrained")
        axes = figure.add_subplot(xlabel=x_label)
        for label, x, y, line in lines:
            axes.plot(x, y, line, label=label, markersize=3)
        if labels:
            figure.legend(fontsize=8, frameon=False, loc="outside lower left")
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return encode("svg+xml", stream.getvalue())


# In which runs of a group may differ
OF_A_MEMBER = ("seed_everything", "data.seed", "data.fold", "experiment")


@dataclass(frozen=True)
class Facts:
    """A run as its files describe it, secrets masked; what is missing or damaged is left out."""

    run: RunFolder
    record: dict[str, Any]  # as of `describe_run`; its problems are those of all files
    settings: dict[str, Any]  # of config.yaml, by dotted key
    baselines: dict[str, dict[str, float]]  # test metrics of each baseline, by its name
    curves: Curves  # what was logged for TensorBoard


def read_facts(run: RunFolder) -> Facts:
    """Read the files of a run; those that are damaged are listed as problems."""
    record = describe_run(run)
    config = read_or_note(record["problems"], read_mapping, run.config)
    baselines = mask(read_or_note(record["problems"], read_json, run.path / "baselines.json"))
    return Facts(
        run=run,
        record=mask(record),
        settings=flatten(mask(config)),
        baselines=dict(list(baselines.items())[1:]),  # the first row is the model's
        curves=read_curves(run.path),
    )


NOT_REAL = "The data was GENERATED, not real: the figures say nothing about the real data."
RANDOM_WEIGHTS = (
    "Weights that should be pretrained are random; RANDOM_WEIGHTS.txt in the run's folder says "
    "which."
)
ENDINGS = {
    "running": "The run is not finished: the figures are those of its best checkpoint so far.",
    "interrupted": "The run was interrupted: the figures are those of its best checkpoint so far.",
    "failed": "The run failed.",
    "killed": "The process of the run was killed: the figures are those of its best checkpoint so "
    "far.",
}
# Settings of trainer
LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "overfit_batches")
STAGES = {"val": "-", "train": "--"}  # and the line that it is drawn with
MOST_CURVES = 9
MOST_ROWS = 30  # of a table
WIDE = 1.4  # times as wide as high: a picture that has a row of its own
FEW = 50  # points of a curve, each with a mark


def build_page(facts: Sequence[Facts], command: str) -> str:
    """Return the page: what the files of each run say, and of a single run the pictures and
    tables.
    """
    runs = {run_facts.run.name: run_facts for run_facts in facts}
    only = facts[0] if len(facts) == 1 else None
    sections: list[Section] = [
        ("Results", list_results(runs)),
        ("Mean and spread", list_spreads(facts)),
        ("Pictures and tables", list_pictures(only) if only else []),
        ("Curves", list_curves(runs)),
        ("Settings", list_settings(runs)),
        ("Cost", list_costs(runs)),
        ("Made from", list_origins(runs)),
        ("How to repeat it", list_commands(runs)),
    ]
    lead = describe_experiment(only) if only else ""
    return render_page(", ".join(runs), sections, command, lead=lead, banners=list_banners(runs))


# The head


def describe_experiment(facts: Facts) -> str:
    data = facts.record.get("data") or {}
    parts = (facts.settings.get("model"), data.get("description"))
    return " on ".join(str(part) for part in parts if part)


def list_banners(runs: Mapping[str, Facts]) -> list[Markup]:
    """Return what has to be known of each run before its figures are read."""
    banners: list[Markup] = []
    for name, facts in runs.items():
        before = f"{name}: " if len(runs) > 1 else ""
        if facts.record["generated_data"]:
            banners.append(show.text(before + NOT_REAL, "error"))
        if (facts.run.path / "RANDOM_WEIGHTS.txt").is_file():
            banners.append(show.text(before + RANDOM_WEIGHTS, "error"))

        # How it ended, what it left out, and files that can't be read
        notes: list[str] = []
        status, reason = facts.record["status"], facts.record.get("reason") or ""
        if status in ENDINGS:
            notes.append(f"{before}{ENDINGS[status]} {reason}")
        limits = {limit: facts.settings.get(f"trainer.{limit}") for limit in LIMITS}
        # 1.0 is all of the data, 1 is one batch.
        parts = [
            f"{limit}: {value}" for limit, value in limits.items() if value and repr(value) != "1.0"
        ]
        if parts:
            notes.append(f"{before}It used a part of its data ({', '.join(parts)}).")
        banners += [show.text(note, "warning") for note in notes + facts.record["problems"]]
    return banners


# The sections


def list_results(runs: Mapping[str, Facts]) -> list[Markup]:
    columns = {name: results.pick_metrics(facts.record) for name, facts in runs.items()}
    baselines = [facts.baselines for facts in runs.values()]
    if baselines.count(baselines[0]) == len(runs):
        columns |= baselines[0]
    names = sorted(
        dict.fromkeys(chain(*columns.values())), key=lambda name: not name.startswith("test")
    )
    rows = [
        [name, *format_column([column.get(name) for column in columns.values()])] for name in names
    ]
    return [show.table(["", *columns], rows)] if rows else []


def list_spreads(runs: Sequence[Facts]) -> list[Markup]:
    finished = [facts for facts in runs if facts.record["status"] == "finished"]
    different = find_differences([facts.settings for facts in finished]).keys()
    if len(finished) < 2 or different - set(OF_A_MEMBER):
        return []
    rows = [
        [name, *results.format_spread(spread)]
        for name, spread in results.measure_spreads(facts.record for facts in finished).items()
    ]
    return [
        show.table(["", "mean", "standard deviation", "95 % interval of the mean", "runs"], rows)
    ]


def list_pictures(facts: Facts) -> list[Markup]:
    """Return what callbacks have left in the folder of a run. Links are not followed, as they may
    lead anywhere.
    """
    # Pictures first, then tables
    paths = sorted(facts.run.path.iterdir(), key=lambda path: (path.suffix != ".png", path.name))
    files = [file for file in paths if not file.is_symlink()]
    blocks = []
    for file in files:
        name = file.stem.replace("_", " ")
        if file.suffix == ".png":
            content = file.read_bytes()
            width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
            kind = "wide" if width > WIDE * height else ""
            blocks.append(show.picture(encode("png", content), name, kind))
        elif file.suffix == ".csv" and name != "predictions":
            lines = list(
                csv.reader(file.read_text(encoding="utf-8", errors="replace").splitlines())
            )
            more = (
                f", the first {MOST_ROWS} of {len(lines) - 1:,} rows"
                if len(lines) > MOST_ROWS + 1
                else ""
            )
            rows = zip(
                *map(shorten, zip_longest(*lines[1 : MOST_ROWS + 1], fillvalue="")), strict=True
            )
            blocks.append(show.table(lines[0], [*rows], name + more) if lines else "")
    return blocks


def shorten(column: Sequence[str]) -> Sequence[str]:
    """Return the cells of a table's column with equally many decimals, where they are fractions."""
    if not any("." in cell for cell in column):
        return column
    try:
        texts = format_column([float(cell) if cell else None for cell in column])
    except ValueError:  # texts or times
        return column
    return [text if cell else "" for cell, text in zip(column, texts, strict=True)]


def list_curves(runs: Mapping[str, Facts]) -> list[Markup]:
    """Return drawings of the metrics over the steps, solid in validation, dashed in training: the
    loss comes first.
    """
    stems: dict[str, list[Line]] = {}
    for number, (run, facts) in enumerate(runs.items()):
        for name, points in facts.curves.items():
            stage, _, stem = name.partition("/")
            if stage in STAGES and not stem.endswith("_step"):
                # One line of a run is in the legend: that of validation, if it has one
                label = run if stage == "val" or f"val/{stem}" not in facts.curves else ""
                steps, values = zip(*points, strict=True)
                line = f"C{number % 10}{STAGES[stage]}" + "o" * (len(points) < FEW)
                stems.setdefault(stem, []).append((label, steps, values, line))
    ordered = sorted(stems, key=lambda stem: (stem != "loss", stem))
    return [
        show.figure(draw_lines(stems[stem], "step"), f"{stem} (dashed: training)")
        for stem in ordered[:MOST_CURVES]
    ]


def list_settings(runs: Mapping[str, Facts]) -> list[Markup]:
    settings = [facts.settings for facts in runs.values()]
    if len(runs) > 1:
        return [show_entries(runs, find_differences(settings))]
    text = dump_config(settings[0])
    return [show.details(f"All {len(settings[0])} settings", show.code(text))]


def list_costs(runs: Mapping[str, Facts]) -> list[Markup]:
    records = [facts.record for facts in runs.values()]
    hardware = [record.get("hardware") or {} for record in records]
    devices = [found.get("device_name") or found.get("device") for found in hardware]
    rows = {"status": [record["status"] for record in records], "device": devices}
    return [show_entries(runs, rows | describe_costs(records))]


def list_origins(runs: Mapping[str, Facts]) -> list[Markup]:
    origins = [flatten_origin(facts.record) for facts in runs.values()]
    rows = (
        find_differences(origins)
        if len(runs) > 1
        else {name: [value] for name, value in origins[0].items() if value is not None}
    )
    rows.pop("host", None)  # a page is for people who were not there
    return [show_entries(runs, rows)]


def list_commands(runs: Mapping[str, Facts]) -> list[Markup]:
    lines = []
    for facts in runs.values():
        lines.append(team.typed("reproduce", str(facts.run.path)))
        lines.append("# " + shlex.join(facts.record.get("command", [])))
    return [show.code("\n".join(lines))]


def show_entries(runs: Mapping[str, Facts], rows: Mapping[str, Sequence[Any]]) -> Markup:
    cells = [[key, *map(format_value, values)] for key, values in rows.items()]
    return (
        show.table(["", *runs], cells, kind="entries") if rows else show.text("They are the same.")
    )
