"""A model card: the facts of a run in Markdown, with the sections and the metadata of the Hugging Face Hub."""

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from litlab.commands.report.blocks import Block, Code, Evaluation, Figure, Paragraph, Report, Section, Table
from litlab.commands.report.facts import Facts
from litlab.commands.report.render import rendered, style
from litlab.commands.report.svg import standalone
from litlab.runs.folder import write_text
from litlab.util import team

FIGURES = "figures"  # folder
# Sections of the report, by the part of the card that they belong to; the others are only on the page.
PARTS = {
    "what": ("what",),
    "data": ("data", "settings"),
    "curves": ("curves",),
    "evaluation": ("results", "classes", "calibration", "forecasts", "errors", "coverage", "residuals"),
    "cost": ("cost",),
    "origin": ("origin", "reproduce"),
}
ON_THE_HUB = {"acc": "accuracy"}  # metrics that have another name there


def write_card(
    facts: Facts, report: Report, evaluation: Evaluation | None, folder: Path, command: str, made: str
) -> Path:
    """Write ``card.md``, and its figures as files, into a folder.

    Args:
        facts: The run.
        report: The report on it.
        evaluation: What its checkpoint showed.
        folder: The folder.
        command: What makes it.
        made: When.

    Returns:
        The card.
    """
    known = {name for names in PARTS.values() for name in names}
    for section in report.sections:
        for block in section.blocks if section.name in known else ():
            if isinstance(block, Figure):
                write_text(folder / FIGURES / f"{block.name}.svg", standalone(block.svg, style("figure.css")))
    path = folder / "card.md"
    text = rendered(
        "card.md",
        head=yaml.safe_dump(metadata(facts, evaluation), sort_keys=False, allow_unicode=True),
        title=_escaped(report.title),
        lead=_escaped(report.lead),
        banners="\n>\n".join(f"> **{_escaped(' '.join(words.text.split()))}**" for words in report.banners),
        parts={part: _part(report.sections, names) for part, names in PARTS.items()},
        predict=shlex.join(team.command("predict", "--run", str(facts.run.path), "--input", "FILE")),
        command=command.replace("`", "'"),
        made=made,
    )
    write_text(path, re.sub(r"\n{3,}", "\n\n", text))
    return path


def metadata(facts: Facts, evaluation: Evaluation | None) -> dict[str, Any]:
    """Return the metadata of the card. Results are in it if the run was tested on real data, and its task is known."""
    known: dict[str, Any] = {"library_name": "pytorch-lightning", "tags": ["pytorch", "pytorch-lightning"]}
    metrics = [
        {"type": ON_THE_HUB.get(stem, stem), "name": name, "value": value}
        for name, value in (facts.metrics.get("test") or {}).items()
        if isinstance(value, (int, float)) and math.isfinite(value)
        for stem in [name.removeprefix("test/")]
    ]
    if evaluation is None or not evaluation.task:
        return known
    known["pipeline_tag"] = evaluation.task
    if metrics and not facts.generated:
        data = facts.made.get("data") or {}
        dataset = {"type": str(data.get("fingerprint")), "name": str(data.get("class")), "split": "test"}
        results = [{"task": {"type": evaluation.task}, "dataset": dataset, "metrics": metrics}]
        known["model-index"] = [{"name": facts.run.name, "results": results}]
    return known


def _part(sections: Sequence[Section], names: Sequence[str]) -> str:
    """Return some sections in Markdown."""
    texts = [
        text
        for section in sections
        if section.name in names
        for text in (f"### {section.title}", *_markdown(section.blocks))
    ]
    return "\n\n".join(texts)


def _markdown(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield blocks in Markdown. Samples, pictures and what is folded are on the page alone."""
    for block in blocks:
        if isinstance(block, Paragraph):
            yield _escaped(block.text)
        elif isinstance(block, Code):
            fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", block.text)), default=0))
            yield f"{fence}\n{block.text}\n{fence}"
        elif isinstance(block, Table):
            if block.caption:
                yield f"{_escaped(block.caption)}:"
            lines = [block.header, ["---"] * len(block.header), *block.rows]
            cells = [[_escaped(" ".join(str(cell).split())) for cell in line] for line in lines]
            yield "\n".join(f"| {' | '.join(line)} |" for line in cells)
        elif isinstance(block, Figure):
            yield f"![{_escaped(block.caption)}]({FIGURES}/{block.name}.svg)"


def _escaped(text: str) -> str:
    """Return a text in which nothing is taken for markup."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", text)
