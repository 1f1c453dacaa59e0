"""The drawings of a report: curves, confusion matrices, calibration, forecasts, errors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from litlab.commands.report.svg import LETTER, Plot, Point, colour, shortened, text, wrapped

MOST_CLASSES = 30  # in a confusion matrix
LOG_FROM = 50  # times its median, the highest value of a curve that is drawn on a logarithmic scale


@dataclass(frozen=True)
class Line:
    """A curve.

    Args:
        name: What the legend calls it.
        points: Its points.
        shade: Its colour (``c0``).
    """

    name: str
    points: Sequence[Point]
    shade: str


def draw_lines(lines: Sequence[Line], x_label: str, label: str) -> Markup:
    """Draw curves over a common axis.

    Args:
        lines: The curves, with a finite value at least.
        x_label: What is on the horizontal axis.
        label: Description for screen readers.
    """
    xs = [x for line in lines for x, _ in line.points]
    ys = sorted(y for line in lines for _, y in line.points if math.isfinite(y))
    log = ys[0] > 0 and ys[-1] > LOG_FROM * ys[len(ys) // 2]
    legend = [(line.name, line.shade) for line in lines if line.name]
    ends = (min(xs), max(xs)), (ys[0], ys[-1])
    plot = Plot(*ends, x_label, legend if len(legend) > 1 else (), log, whole=True)
    for line in lines:
        plot.line(line.points, line.shade)
    return plot.svg(label)


def draw_matrix(counts: np.ndarray, names: Sequence[str]) -> Markup:
    """Draw a confusion matrix: the colour is the share of the true class, the number a count.

    Args:
        counts: Samples by (true class, predicted class), int64 of shape (classes, classes).
        names: Name of each class.
    """
    classes = len(counts)
    cell = 34 if classes <= 12 else 22
    labels = [shortened(name, 16) for name in names]
    longest = max(len(name) for name in labels) * LETTER
    upright = longest <= cell - 4
    left, top = longest + 30, 36 if upright else longest + 28
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    frame = '<rect class="frame" x="{}" y="{}" width="{}" height="{}"/>'
    parts = [Markup(frame).format(round(left - 1, 1), round(top - 1, 1), classes * cell + 1, classes * cell + 1)]
    parts.append(text(left + classes * cell / 2, 12, "predicted", "middle"))
    parts.append(text(12, top + classes * cell / 2, "true", "middle", turned=True))
    square = '<rect class="cell" x="{}" y="{}" width="{}" height="{}" fill-opacity="{}"/>'
    for row in range(classes):
        y = top + row * cell
        parts.append(text(left - 7, y + cell / 2 + 4, labels[row], "end"))
        middle = left + (row + 0.5) * cell
        parts.append(
            text(middle, top - 7, labels[row], "middle")
            if upright
            else text(middle + 4, top - 7, labels[row], turned=True)
        )
        for column in np.flatnonzero(counts[row]).tolist():
            x, share = left + column * cell, float(shares[row, column])
            parts.append(Markup(square).format(round(x, 1), round(y, 1), cell - 1, cell - 1, round(share, 3)))
            if classes <= 20:
                style = "middle small inside" if share > 0.7 else "middle small outside"
                parts.append(text(x + cell / 2, y + cell / 2 + 3.5, f"{counts[row, column]}", style))
    label = f"Confusion matrix: {int(np.trace(counts)):,} of {int(counts.sum()):,} correct"
    return wrapped(parts, left + classes * cell + 2, top + classes * cell + 2, label)


def draw_reliability(edges: np.ndarray, accuracy: np.ndarray, share: np.ndarray, label: str) -> Markup:
    """Draw how often predictions are right, by how sure the model was.

    Args:
        edges: Ends of the bins of the confidence, shape (bin + 1,).
        accuracy: Share of correct predictions in each bin, NaN in one without samples, shape (bin,).
        share: Share of the samples in each bin, shape (bin,).
        label: Description for screen readers.
    """
    legend = [("correct", "c0"), ("share of samples", "c1"), ("ideal", "c7")]
    plot = Plot((0, 1), (0, 1), "confidence of the prediction", legend)
    for number, (right, part) in enumerate(zip(accuracy, share, strict=True)):
        low, high = float(edges[number]), float(edges[number + 1])
        if part > 0:
            plot.bar((low, high), float(right), "c0")
            middle = (low + high) / 2
            plot.bar((middle - (high - low) / 6, middle + (high - low) / 6), float(part), "c1")
    plot.line([(0, 0), (1, 1)], "c7", "line dashed")
    return plot.svg(label)


def draw_window(past: np.ndarray, future: np.ndarray, forecast: np.ndarray, ends: np.ndarray, label: str) -> Markup:
    """Draw a forecast of one column behind the end of its past.

    Args:
        past: The last values before it, shape (past,).
        future: The truth, shape (horizon,).
        forecast: Shape (horizon,).
        ends: Lower and upper end of the interval, NaN where there is none, shape (2, horizon).
        label: Description for screen readers.
    """
    known = np.isfinite(ends).all()
    every = np.concatenate([past, future, *(ends if known else ()), forecast[np.isfinite(forecast)]])
    steps = [float(step) for step in range(1, len(future) + 1)]
    legend = [("series", "c7"), ("forecast and interval" if known else "forecast", "c0")]
    plot = Plot(
        (1 - len(past), len(future)), (float(every.min()), float(every.max())), "steps ahead", legend, whole=True
    )
    if known:
        plot.band(steps, ends[0].tolist(), ends[1].tolist(), "c0")
    series = np.concatenate([past, future]).tolist()
    plot.line(zip(range(1 - len(past), len(future) + 1), series, strict=True), "c7", "line plain")
    plot.line(zip(steps, forecast.tolist(), strict=True), "c0", "line plain")
    if len(steps) == 1 and math.isfinite(forecast[0]):
        plot.dots([(1.0, float(forecast[0]))], "c0", 3)
    return plot.svg(label)


def draw_scatter(true: np.ndarray, predicted: np.ndarray, label: str) -> Markup:
    """Draw predictions over the true values, with the line on which they would be the same.

    Args:
        true: Shape (sample,).
        predicted: Shape (sample,).
        label: Description for screen readers.
    """
    low, high = float(min(true.min(), predicted.min())), float(max(true.max(), predicted.max()))
    plot = Plot((low, high), (low, high), "true value", [("predicted", "c0"), ("right", "c7")])
    plot.line([(low, low), (high, high)], "c7", "line dashed")
    plot.dots(zip(true, predicted, strict=True), "c0")
    return plot.svg(label)


def draw_histogram(values: np.ndarray, x_label: str, label: str) -> Markup:
    """Draw how often values occur.

    Args:
        values: Shape (sample,).
        x_label: What they are.
        label: Description for screen readers.
    """
    counts, edges = np.histogram(values, bins=min(30, max(5, math.isqrt(len(values)))))
    plot = Plot((float(edges[0]), float(edges[-1])), (0, float(counts.max())), x_label)
    for number, count in enumerate(counts):
        plot.bar((float(edges[number]), float(edges[number + 1])), float(count), "c0")
    return plot.svg(label)


def draw_steps(values: dict[str, np.ndarray], label: str) -> Markup:
    """Draw curves over the steps of a forecast.

    Args:
        values: By name: a value for each step, shape (horizon,).
        label: Description for screen readers.
    """
    lines = [
        Line(name, [(float(step), float(y)) for step, y in enumerate(curve, 1)], colour(number))
        for number, (name, curve) in enumerate(values.items())
    ]
    return draw_lines(lines, "steps ahead", label)
