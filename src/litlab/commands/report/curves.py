"""The curves of a run, as TensorBoard has them."""

import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litlab.commands.report.blocks import Block, Figure, Paragraph
from litlab.commands.report.drawings import Line, draw_lines
from litlab.commands.report.svg import Point, colour

Curves = dict[str, list[Point]]  # by name: steps and values
NOT_SHOWN = ("hp/", "test/", "baseline/", "memory/", "vram/", "time/", "data/", "lr-", "epoch")
MOST = 14  # charts
STAGES = {"train": "training", "val": "validation"}


def read_curves(folder: Path, problems: list[str]) -> Curves:
    """Read the scalars of the event files in a folder.

    Args:
        folder: The folder of a run.
        problems: Gets a line if a file can't be read.
    """
    if not any(folder.glob("events.out.tfevents.*")):
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    events = EventAccumulator(str(folder), {"scalars": 0, "images": 1, "tensors": 1, "histograms": 1})
    try:
        events.Reload()  # what is damaged in them it passes over
    except OSError as error:
        problems.append(f"the event files in {folder} can't be read ({error.strerror}): there are no curves.")
        return {}
    names: Any = events.Tags()["scalars"]
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in names}


def charts(runs: Sequence[tuple[str, Curves]], first: str | None) -> list[Block]:
    """Draw the curves of a run, training and validation together, or those of several runs.

    Args:
        runs: Their names and curves.
        first: A metric such as ``val/acc``, whose chart comes behind that of the loss.

    Returns:
        At most `MOST` charts, and the names of those that are left out.
    """
    stems = dict.fromkeys(_stem(name) for _, curves in runs for name in curves if not name.startswith(NOT_SHOWN))
    wanted = ["loss", _stem(first or "")]
    ordered = sorted(stems, key=lambda stem: (wanted.index(stem) if stem in wanted else len(wanted), stem))
    if len(runs) > 1:
        found = [
            figure for stem in ordered for stage in ("val", "train", "") if (figure := _of_runs(runs, stage, stem))
        ]
    else:
        found = [figure for stem in ordered if (figure := _of_stages(runs[0][1], stem))]
    rates = [figure for figure in [_rates(runs)] if figure]
    room = MOST - len(rates)
    left = ", ".join(figure.caption for figure in found[room:])
    said = [Paragraph(f"Only in TensorBoard, as the page would become too long: {left}.", "note")] if left else []
    return [*found[:room], *rates, *said]


def _of_stages(curves: Curves, stem: str) -> Figure | None:
    named = {f"{stage}/{stem}": word for stage, word in STAGES.items()} | {stem: ""}
    return _figure(stem, [(word, curves, name) for name, word in named.items()])


def _of_runs(runs: Sequence[tuple[str, Curves]], stage: str, stem: str) -> Figure | None:
    name = f"{stage}/{stem}" if stage else stem
    if stage == "train" and stem.endswith("_step"):  # says little more than the mean of the epoch
        return None
    return _figure(name, [(title, curves, name) for title, curves in runs])


def _figure(title: str, wanted: Sequence[tuple[str, Curves, str]]) -> Figure | None:
    """Draw curves over epochs, if all of them have one value an epoch, else over steps.

    Args:
        title: What they are.
        wanted: What the legend calls each, and the curves and the name that it has there, if it is there.
    """
    kept = [(number, *entry) for number, entry in enumerate(wanted) if entry[2] in entry[1]]
    by_epoch = [_by_epoch(curves[name], curves) for _, _, curves, name in kept]
    epochs = all(by_epoch)
    lines = [
        Line(label, (points if epochs else curves[name]) or [], colour(number))
        for (number, label, curves, name), points in zip(kept, by_epoch, strict=True)
    ]
    if not any(math.isfinite(y) for line in lines for _, y in line.points):
        return None
    svg = draw_lines(lines, "epoch" if epochs else "step", f"{title} over the training")
    caption = f"{title.removesuffix('_step')}, step by step" if title.endswith("_step") else title
    return Figure(svg, caption, "curve_" + re.sub(r"\W+", "_", title))


def _by_epoch(points: list[Point], curves: Curves) -> list[Point] | None:
    """Return points with epochs from 1 in place of steps; None for a curve that has not one value an epoch."""
    epochs = {step: epoch + 1 for step, epoch in reversed(curves.get("epoch", []))}
    found = [epochs.get(step) for step, _ in points]
    if None in found or len(set(found)) < len(found):
        return None
    return [(epoch, value) for epoch, (_, value) in zip(found, points, strict=True) if epoch is not None]


def _rates(runs: Sequence[tuple[str, Curves]]) -> Figure | None:
    """Draw the learning rates; where groups of parameters have rates of their own, as shares of their highest."""
    found = {
        (title, name): curves[name]
        for title, curves in runs
        for name in [name for name in curves if name.startswith("lr-")][: 1 if len(runs) > 1 else 8]
    }
    highest = {key: max((abs(y) for _, y in points if math.isfinite(y)), default=0.0) for key, points in found.items()}
    found = {key: points for key, points in found.items() if highest[key] > 0}
    if not found:
        return None
    alike = len({highest[key] for key in found}) == 1
    lines = []
    for number, ((title, name), points) in enumerate(found.items()):
        group = name.removeprefix("lr-")
        label = (title if len(runs) > 1 else group) + ("" if alike else f", up to {highest[title, name]:.3g}")
        scale = 1.0 if alike else highest[title, name]
        lines.append(Line(label, [(step, value / scale) for step, value in points], colour(number)))
    caption = "learning rate" if alike else "learning rates, as shares of the highest of each"
    return Figure(draw_lines(lines, "step", caption), caption, "curve_learning_rate")


def _stem(name: str) -> str:
    stage, slash, stem = name.partition("/")
    return stem if slash and stage in STAGES else name
