"""The report on one run, from its files and, where it was evaluated, from its checkpoint."""

from typing import Any

import yaml

from litlab.commands.report.blocks import Block, Code, Details, Evaluation, Paragraph, Report, Section, Table
from litlab.commands.report.callback_files import callback_files
from litlab.commands.report.curves import charts
from litlab.commands.report.facts import Facts, class_line
from litlab.commands.report.origin import cost, duration, origin, reproduction
from litlab.commands.report.shipped import Shipped, differences, shipped_config
from litlab.commands.report.tables import beside_baselines, validation_line
from litlab.runs import results
from litlab.util.text import decimals

KINDS = {"finished": "good", "running": "plain", "interrupted": "plain", "unknown": "plain"}  # of badges; else bad
LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "overfit_batches")  # settings of trainer
NOT_REAL = "The data was GENERATED, not real: the figures say nothing about the real data."


def report_on(facts: Facts, evaluation: Evaluation | None, why_not: str) -> Report:
    """Build the report.

    Args:
        facts: What the files of the run say.
        evaluation: What its checkpoint showed.
        why_not: Why there is no evaluation.
    """
    shipped = shipped_config(facts)
    monitored = (facts.metrics.get("best") or {}).get("monitor")
    judged = evaluation is not None and evaluation.sections
    sections = [
        Section("what", "What it is", _what(facts, shipped, evaluation)),
        Section("results", "Results", _results(facts, evaluation)),
        *(evaluation.sections if evaluation else []),
        Section("curves", "Curves", charts([("", facts.curves)], monitored)),
        Section("data", "Data", _data(facts, evaluation)),
        Section("settings", "Settings", _settings(facts, shipped)),
        Section("cost", "Cost", cost(facts)),
        Section("origin", "Made from", origin(facts)),
        Section("reproduce", "How to reproduce it", reproduction(facts)),
        Section("files", "What its callbacks have drawn", callback_files(facts.run, everything=not judged)),
        Section("missing", "What is left out", _left_out(facts, evaluation, why_not)),
    ]
    return Report(
        title=facts.run.name,
        lead=shipped.first_sentence if shipped else "",
        badges=[(facts.status, KINDS.get(facts.status.rstrip("?"), "bad"))],
        banners=banners(facts),
        tiles=_tiles(facts, evaluation),
        sections=[section for section in sections if section.blocks],
    )


def banners(facts: Facts) -> list[Paragraph]:
    """Return what must be read before any figure of a run."""
    found = []
    if facts.generated:
        found.append(Paragraph(NOT_REAL, "error"))
    if facts.random_weights:
        found.append(Paragraph(facts.random_weights, "error"))
    endings = {
        "running": "The run is not finished: the figures are those of its last complete epoch.",
        "interrupted": "The run was interrupted: the figures are those of its last complete epoch.",
        "failed": "The run failed.",
        "killed": "The process of the run was killed: the figures are those of its last complete epoch.",
    }
    if ending := endings.get(facts.status.rstrip("?")):
        reason = facts.state.get("reason")
        found.append(Paragraph(f"{ending} {reason}" if reason else ending, "warning"))
    values = {f"trainer.{name}": facts.settings.get(f"trainer.{name}") for name in LIMITS}
    if parts := [f"{key}: {value}" for key, value in values.items() if value and repr(value) != "1.0"]:
        said = f"It used a part of its data ({', '.join(parts)}): the figures are not those of all of it."
        found.append(Paragraph(said, "warning"))
    return found + [Paragraph(problem, "warning") for problem in facts.problems]


def classes_of(facts: Facts) -> list[list[str]]:
    """Return model, network and data with the first line of what their docstrings say."""
    model, data = facts.config.get("model"), facts.config.get("data")
    settings = (model.get("init_args") if isinstance(model, dict) else None) or {}
    named = {"model": model, "network": settings.get("network"), "optimizer": settings.get("optimizer"), "data": data}
    rows = []
    for what, block in named.items():
        path = block.get("class_path") if isinstance(block, dict) else None
        if isinstance(path, str):
            said = class_line(path)
            gone = "This class is no longer in the project, or its file is broken." if said is None else said
            rows.append([f"{what}: {path.rpartition('.')[2]}", gone])
    return rows


def _what(facts: Facts, shipped: Shipped | None, evaluation: Evaluation | None) -> list[Block]:
    found: list[Block] = []
    if shipped and shipped.comment:
        found += [Paragraph(f"What {shipped.name} says of the experiment:", "note"), Code(shipped.comment)]
    if rows := classes_of(facts):
        found.append(Table(["", "what it is"], rows))
    if evaluation:
        every, trained = evaluation.parameters
        found.append(Paragraph(f"{every:,} parameters, {trained:,} of them trained."))
    return found


def _results(facts: Facts, evaluation: Evaluation | None) -> list[Block]:
    table = beside_baselines(facts, evaluation)
    line = validation_line(facts)
    return [*([table] if table else []), *([Paragraph(line)] if line else [])]


def _tiles(facts: Facts, evaluation: Evaluation | None) -> list[tuple[str, str, str]]:
    tiles = []
    mark = "generated data" if facts.generated else ""
    name = results.test_name(facts.metrics)
    if name is not None:
        others = {who: row[name] for who, row in facts.baselines.items() if name in row}
        sign = results.direction(name, [facts.metrics])
        best = max(others, key=lambda who: sign * others[who]) if others and sign else None
        beside = f"{best}: {decimals(others[best])}" if best else ""
        tiles.append((decimals(facts.metrics["test"][name]), name, " · ".join(filter(None, [beside, mark]))))
    best = facts.metrics.get("best") or {}
    if best.get("value") is not None:
        tiles.append((decimals(best["value"]), best["monitor"], " · ".join(filter(None, ["best", mark]))))
    if facts.seconds:
        hardware = facts.made.get("hardware") or {}
        device = hardware.get("device_name") or hardware.get("device")
        tiles.append((duration(facts.seconds), "time", f"on {device}" if device else ""))
    if evaluation:
        tiles.append((_short(evaluation.parameters[0]), "parameters", ""))
    return tiles


def _data(facts: Facts, evaluation: Evaluation | None) -> list[Block]:
    data: dict[str, Any] = facts.made.get("data") or {}
    found: list[Block] = [Paragraph(str(data["description"]))] if data.get("description") else []
    if evaluation is None:
        return found
    if counts := evaluation.counts:
        rows = [
            [name, *(f"{split[place]:,}" for split in counts.values())]
            for place, name in enumerate(evaluation.class_names)
        ]
        total = ["all", *(f"{sum(split):,}" for split in counts.values())]
        table = Table(["class", *counts], [*rows, total], "Samples of each class", numbers=True)
        found.append(table if len(rows) <= 12 else Details(f"Samples of each of {len(rows)} classes", [table]))
    elif evaluation.sizes:
        row = ["samples", *(f"{size:,}" for size in evaluation.sizes.values())]
        found.append(Table(["", *evaluation.sizes], [row], numbers=True))
    return [*found, *evaluation.samples]


def _settings(facts: Facts, shipped: Shipped | None) -> list[Block]:
    if not facts.config:
        return []
    found: list[Block] = []
    if shipped is None:
        found.append(Paragraph("The config that the run was started with is not here, so there is nothing to compare."))
    elif rows := differences(facts, shipped):
        found.append(Table(["setting", shipped.name, "this run"], rows))
    else:
        found.append(Paragraph(f"The settings are those of {shipped.name}."))
    text = yaml.safe_dump(facts.config, sort_keys=False, allow_unicode=True)
    return [*found, Details(f"All {len(facts.settings)} settings", [Code(text)])]


def _left_out(facts: Facts, evaluation: Evaluation | None, why_not: str) -> list[Block]:
    found = []
    if evaluation is None:
        found.append(f"Results of each class, calibration, residuals, mistakes, samples and parameters: {why_not}")
    elif not evaluation.sections:
        found.append("Mistakes and calibration: the model's test_step returns no logits, forecast or predicted.")
    if not facts.metrics.get("test") and not evaluation:
        found.append("Test results: the run has none.")
    if not facts.curves:
        found.append("Curves: there are no event files of TensorBoard in its folder.")
    return [Paragraph(line) for line in found]


def _short(count: int) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
