"""The report on several runs, side by side."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from litlab.commands.report.blocks import Block, Code, Details, Paragraph, Report, Section, Table
from litlab.commands.report.curves import charts
from litlab.commands.report.facts import Facts
from litlab.commands.report.origin import duration, reproduction
from litlab.commands.report.single import banners, classes_of
from litlab.commands.report.spread import over_seeds
from litlab.commands.report.tables import best_values
from litlab.runs import results
from litlab.runs.compare import flatten_origin
from litlab.runs.settings import differences, format_value
from litlab.util import team
from litlab.util.text import decimals

Runs = Mapping[str, Facts]  # by short name
HIDDEN = ("hardware.host", "seed")  # of what they were made from: the seed is among the settings


def report_on_several(title: str, every: Sequence[Facts]) -> Report:
    """Build the report on two runs or more from their files; no checkpoint is evaluated.

    Args:
        title: What they are called together.
        every: The runs.
    """
    runs = dict(zip(short_names([facts.run.name for facts in every]), every, strict=True))
    monitored = next((best["monitor"] for facts in every if (best := facts.metrics.get("best"))), None)
    curves = charts([(name, facts.curves) for name, facts in runs.items()], monitored)
    sections = [
        Section("runs", "Runs", [_overview(runs), *_classes(runs), *_data(runs)]),
        Section("results", "Results", _results(runs)),
        Section("seeds", "Mean and spread over seeds", over_seeds(every)),
        Section("curves", "Curves", curves),
        Section("settings", "Settings that differ", _settings(runs)),
        Section("origin", "Made from", _origin(runs)),
        Section("reproduce", "How to reproduce them", _reproduction(runs)),
        Section("more", "More of each run", _more(runs)),
    ]
    return Report(
        title=title,
        lead=", ".join(facts.run.name for facts in every),
        badges=[],
        banners=_banners(runs),
        tiles=[],
        sections=[section for section in sections if section.blocks],
    )


def short_names(names: Sequence[str]) -> list[str]:
    """Return the names of runs without the folders that are the same for all, at the front and at the end."""
    if len(set(names)) < len(names):  # of runs below different roots
        return [f"{name} ({number})" for number, name in enumerate(names, 1)]
    parts = [name.split("/") for name in names]
    front = _shared(parts)
    back = _shared([part[front:][::-1] for part in parts])
    return ["/".join(part[front : len(part) - back]) or name for part, name in zip(parts, names, strict=True)]


def _shared(parts: Sequence[Sequence[str]]) -> int:
    """Return with how many same items all of some lists begin."""
    return sum(1 for _ in takewhile(lambda items: len(set(items)) == 1, zip(*parts, strict=False)))


def _banners(runs: Runs) -> list[Paragraph]:
    """Return what must be read before any figure, each once, with the runs that it is about."""
    found: dict[Paragraph, list[str]] = {}
    for name, facts in runs.items():
        for words in banners(facts):
            found.setdefault(words, []).append(name)
    return [
        Paragraph(f"{'All runs' if len(names) == len(runs) else ', '.join(names)}: {words.text}", words.kind)
        for words, names in found.items()
    ]


def _overview(runs: Runs) -> Table:
    every = runs.values()
    rows: dict[str, list[str | None]] = {
        "status": [facts.status for facts in every],
        "started": [_day(facts) for facts in every],
        "time": [duration(facts.seconds) if facts.seconds else None for facts in every],
        "device": [(facts.made.get("hardware") or {}).get("device") for facts in every],
        "peak memory, GiB": [_text(facts.metrics.get("peak_memory_gib"), ".3g") for facts in every],
        "samples per second": [_text(facts.samples_per_second, ",.0f") for facts in every],
        "epochs": [_text(facts.metrics.get("epochs"), ",") for facts in every],
        "optimizer steps": [_text(facts.metrics.get("steps"), ",") for facts in every],
    }
    known = {name: values for name, values in rows.items() if any(values)}
    return Table(["", *runs], [[name, *(value or "-" for value in values)] for name, values in known.items()])


def _classes(runs: Runs) -> list[Block]:
    """Return the classes that the runs are made of, each once."""
    rows = list({tuple(row): row for facts in runs.values() for row in classes_of(facts)}.values())
    return [Table(["", "what it is"], rows)] if rows else []


def _data(runs: Runs) -> list[Block]:
    found = dict.fromkeys(str((facts.made.get("data") or {}).get("description") or "") for facts in runs.values())
    return [Paragraph(f"Data: {line}") for line in found if line]


def _results(runs: Runs) -> list[Block]:
    columns = [(name, results.values(facts.metrics)) for name, facts in runs.items()]
    baselines = [facts.baselines for facts in runs.values()]
    if all(one == baselines[0] for one in baselines):  # of the same data, so they can stand beside all runs
        columns += baselines[0].items()
    names = list(dict.fromkeys(name for _, values in columns for name in values))
    names.sort(key=lambda name: not name.startswith("test"))
    if not names:
        return [Paragraph("There are no metrics.")]
    winners = best_values([values for _, values in columns], [facts.metrics for facts in runs.values()])
    best = {
        (row, place)
        for row, name in enumerate(names)
        for place, (_, values) in enumerate(columns, 1)
        if name in winners and values.get(name) == winners[name]
    }
    cells = [[name, *(decimals(values.get(name)) for _, values in columns)] for name in names]
    header = ["", *(title for title, _ in columns)]
    return [Table(header, cells, "The best of each row is bold", frozenset(best), numbers=True)]


def _settings(runs: Runs) -> list[Block]:
    return _side_by_side(runs, [facts.settings for facts in runs.values()], "The settings are the same.")


def _origin(runs: Runs) -> list[Block]:
    flat = [flatten_origin(facts.made) for facts in runs.values()]
    kept = [{key: value for key, value in one.items() if key not in HIDDEN} for one in flat]
    return _side_by_side(runs, kept, "Code, versions, hardware and data are the same.")


def _side_by_side(runs: Runs, entries: list[dict[str, Any]], otherwise: str) -> list[Block]:
    """Return a table of the entries that differ."""
    rows = [[key, *map(format_value, values)] for key, values in differences(entries).items()]
    return [Table(["", *runs], rows)] if rows else [Paragraph(otherwise)]


def _reproduction(runs: Runs) -> list[Block]:
    return [Details(name, blocks) for name, facts in runs.items() if (blocks := reproduction(facts))]


def _more(runs: Runs) -> list[Block]:
    """Say where the rest is."""
    commands = [shlex.join(team.command("report", str(facts.run.path))) for facts in runs.values()]
    said = "Calibration, mistakes, residuals and samples are in the report on each run:"
    return [Paragraph(said), Code("\n".join(commands))]


def _day(facts: Facts) -> str | None:
    started = facts.made.get("started") or facts.state.get("started")
    return str(started).replace("T", " ")[:16] if started else None


def _text(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
