"""Pictures of the searched settings: how much each mattered, and which values went with which results."""

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from litlab.sweep.results import best, completed, in_state, last_value, parameters, ranked
from litlab.sweep.scales import BEST, DPI, PRUNED, Setting, Values, label, legend
from litlab.sweep.study import counted
from litlab.util.commands import decimals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from litlab.sweep.spec import SweepSpec

APART = 0.25  # share of its room that lines through a choice take


def draw_importances(importances: dict[str, dict[str, float]], remark: str) -> "Figure":
    """Draw how much each setting mattered, a bar for each metric, the most important for the first metric on top.

    Args:
        importances: Share by metric and YAML path; {} where they are not known.
        remark: How they were found, or why they are not known.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    first = next(iter(importances.values()), {})
    names = sorted(first, key=lambda name: -first[name])
    texts = [label(name, 44) for name in names]
    lines = sum(1 + 0.6 * text.count("\n") for text in texts) * (1 + 0.5 * (len(importances) - 1))
    figure = Figure(figsize=(9.0, 1.2 + 0.34 * lines if names else 0.6), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    figure.suptitle(fill(remark.replace("$", r"\$"), 120), fontsize=9)
    if not names:
        axes.set_axis_off()
        return figure
    height = 0.75 / len(importances)
    for number, (metric, shares) in enumerate(importances.items()):
        rows = np.arange(len(names)) + height * (number - (len(importances) - 1) / 2)
        widths = [shares[name] for name in names]
        bars = axes.barh(rows, widths, height=0.95 * height, label=label(metric, 60))
        axes.bar_label(bars, [f"{width:.1%}" for width in widths], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), texts, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(max(shares.values()) for shares in importances.values()))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    if len(importances) > 1:
        axes.legend(fontsize=8, loc="lower right")
    return figure


def draw_parallel(spec: "SweepSpec", trials: list[FrozenTrial]) -> "Figure":
    """Draw each completed trial as a line from setting to setting down to its value, whose colour it has.

    The axes lie one below the other, not side by side: YAML paths are long. A setting that a trial does not have, as
    its condition is not met, stands at "unset".

    Args:
        spec: The sweep.
        trials: Its trials, at least one of them completed.
    """
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    drawn = ranked(spec, trials)[::-1]  # the best on top
    scale = Values.of(spec, trials, 0)
    names = parameters(spec, drawn)
    settings = [Setting.of(name, drawn) for name in names]
    rows = len(names) + 1
    figure = Figure(figsize=(9.0, 0.8 + 0.75 * rows), dpi=DPI, layout="constrained")
    axes = figure.subplots()

    places = np.tile(1.1 + 0.05 * _apart(drawn)[:, None], rows)  # "unset"
    for column, setting in enumerate(settings):
        having = [i for i, trial in enumerate(drawn) if setting.name in trial.params]
        places[having, column] = setting.positions([drawn[i].params[setting.name] for i in having])
        ticks, texts = setting.ticks(6)
        if setting.is_choice:
            places[having, column] += APART * _apart([drawn[i] for i in having]) / len(ticks)
        if len(having) < len(drawn):
            axes.plot([1.07, 1.13], [column, column], color="black", linewidth=0.8)
            axes.text(1.1, column + 0.1, "unset", ha="center", va="top", fontsize=8, color="#555555")
        axes.plot([0, 1], [column, column], color="black", linewidth=0.8)
        _mark(axes, column, ticks, texts, width=max(80 // len(ticks), 4))
    values = scale.shown(np.array([trial.values[0] for trial in drawn]))
    low, high = values.min(), values.max()
    shares = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
    places[:, -1] = shares

    colours = colormaps["viridis" if scale.sign > 0 else "viridis_r"]
    depth = np.arange(rows)
    lines = [np.column_stack([place, depth]) for place in places]
    width = 1.3 if len(drawn) < 60 else 0.6
    axes.add_collection(LineCollection(lines, colors=colours(shares), linewidths=width, alpha=0.75))
    name = f"best {label(spec.metrics[0], 60)} (trial {drawn[-1].number})"
    axes.plot(*lines[-1].T, color=BEST, linewidth=2.2, label=name)
    bar = (0, 1, rows - 1.06, rows - 0.94)
    axes.imshow(np.linspace(0, 1, 256)[None], extent=bar, cmap=colours, aspect="auto", zorder=3)
    ticks = np.linspace(0, 1, 5) if high > low else np.array([0.5])
    texts = [decimals(low + tick * (high - low)) for tick in ticks]
    if scale.beyond(np.array([trial.values[0] for trial in drawn])).any():
        texts[-1 if scale.sign > 0 else 0] += "\nor worse"
    _mark(axes, rows - 1, ticks, texts)
    axes.set_yticks(range(rows), [*(label(name, 34) for name in names), scale.title], fontsize=8)
    axes.set_ylim(rows - 0.35, -0.3)
    axes.set_xlim(-0.05, 1.17 if places.max() > 1.05 else 1.05)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.legend(loc="outside upper center", fontsize=8, frameon=False)
    return figure


def draw_slices(spec: "SweepSpec", trials: list[FrozenTrial]) -> "Figure":
    """Draw each metric over each setting, later trials darker; trials without the setting are left out.

    Args:
        spec: The sweep.
        trials: Its trials, at least one of them completed.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    done = completed(trials)
    pruned = [trial for trial in in_state(counted(trials), TrialState.PRUNED) if trial.intermediate_values]
    settings = [Setting.of(name, done) for name in parameters(spec, done)]
    rows = -(-len(settings) // 4)
    columns = -(-len(settings) // rows)
    size = (max(2.5 * columns + 0.6, 5.0), 2.9 * rows * len(spec.metrics) + 0.5)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    grid = figure.subplots(rows * len(spec.metrics), columns, sharey="row", squeeze=False)
    blues = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1.0, 256)))
    order = ScalarMappable(Normalize(done[0].number, done[-1].number), blues)
    for index in range(len(spec.metrics)):
        scale = Values.of(spec, trials, index)
        panels = grid[index * rows : (index + 1) * rows]
        for axes, setting in zip(panels.flat, settings, strict=False):
            if index == 0 and pruned:
                x, having = _places(setting, pruned)
                y = np.array([last_value(trial) for trial in having])
                scale.scatter(axes, x, y, "x", "pruned", color=PRUNED, s=16, linewidths=0.8)
            x, having = _places(setting, done)
            y = np.array([trial.values[index] for trial in having])
            colours = order.to_rgba(np.array([trial.number for trial in having]))
            scale.scatter(axes, x, y, "o", "completed", color=colours, s=20)
            x, having = _places(setting, best(spec, trials))
            y = scale.shown(np.array([trial.values[index] for trial in having]))
            name = "best" if len(spec.metrics) == 1 else "Pareto front"
            axes.scatter(x, y, s=60, facecolors="none", edgecolors=BEST, linewidths=1.3, label=name)
            _finish_slice(axes, setting)
        for axes in panels.flat[len(settings) :]:
            axes.set_axis_off()
        for axes in panels[:, 0]:
            axes.set_ylabel(scale.title, fontsize=8)
    if len(done) > 1:
        bar = figure.colorbar(order, ax=grid, shrink=0.6, aspect=30, pad=0.01)
        bar.set_label("trial", fontsize=8)
        bar.locator = MaxNLocator(6, integer=True)
        bar.ax.tick_params(labelsize=7)
    legend(figure)
    return figure


def _places(setting: Setting, trials: list[FrozenTrial]) -> tuple[np.ndarray, list[FrozenTrial]]:
    """Where trials stand on the axis of a setting, shape (trial,), and which of them have it."""
    having = [trial for trial in trials if setting.name in trial.params]
    places = setting.positions([trial.params[setting.name] for trial in having])
    return places + (_apart(having) / len(setting.ticks(4)[0]) if setting.is_choice else 0.0), having


def _finish_slice(axes: "Axes", setting: Setting) -> None:
    ticks, texts = setting.ticks(4)
    upright = setting.is_choice and max(map(len, texts)) > 36 // len(ticks)
    texts = [label(text, 20, 2 if len(ticks) < 10 else 1) for text in texts]
    axes.set_xticks(ticks, texts, rotation=90 if upright else 0)
    axes.set_xlim(-0.06, 1.06)
    axes.set_xlabel(label(setting.name, 30), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)


def _apart(trials: list[FrozenTrial]) -> np.ndarray:
    """A number from -0.3 to 0.3 for each trial, which sets apart what stands at one place; shape (trial,)."""
    golden = 0.618034  # multiples of it, without their whole part, are spread evenly however many there are
    return 0.6 * (np.array([trial.number for trial in trials]) * golden % 1.0) - 0.3


def _mark(axes: "Axes", row: int, ticks: np.ndarray, texts: list[str], width: int = 16) -> None:
    """Mark places on the axis of a row of the parallel picture."""
    axes.scatter(ticks, [row] * len(ticks), marker="|", color="black", s=30, linewidths=0.8, zorder=4)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    for tick, text in zip(ticks, texts, strict=True):
        axes.text(tick, row + 0.13, label(text, width, 3), ha="center", va="top", fontsize=8, bbox=box, zorder=5)
