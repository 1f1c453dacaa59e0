"""Pictures of what a sweep came to: its history, the curves of its trials, the trade between metrics."""

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from litlab.sweep.results import best, completed, in_state, last_value, losses
from litlab.sweep.scales import BEST, DONE, DPI, FAILED, OTHER, PRUNED, Values, legend
from litlab.sweep.study import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from litlab.sweep.spec import SweepSpec


def draw_history(spec: "SweepSpec", trials: list[FrozenTrial]) -> "Figure":
    """Draw the values of all trials in their order, a panel for each metric, with the best so far.

    Pruned trials stand at their last validation, failed ones at the foot.

    Args:
        spec: The sweep.
        trials: Its trials, at least one of them completed.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    done, begun = completed(trials), counted(trials)
    pruned = [trial for trial in in_state(begun, TrialState.PRUNED) if trial.intermediate_values]
    failed = in_state(begun, TrialState.FAIL)
    figure = Figure(figsize=(9.0, 0.7 + 3.3 * len(spec.metrics)), dpi=DPI, layout="constrained")
    for index, axes in enumerate(figure.subplots(len(spec.metrics), sharex=True, squeeze=False)[:, 0]):
        scale = Values.of(spec, trials, index)
        numbers = np.array([trial.number for trial in done])
        values = np.array([trial.values[index] for trial in done])
        scale.scatter(axes, numbers, values, "o", f"completed ({len(done)})", color=DONE, s=22, zorder=3)
        if index == 0 and pruned:
            last = np.array([last_value(trial) for trial in pruned])
            at = np.array([trial.number for trial in pruned])
            scale.scatter(axes, at, last, "x", f"pruned ({len(pruned)})", color=PRUNED, s=22, zorder=2)
        so_far = scale.shown(scale.sign * np.minimum.accumulate(losses(spec, done)[:, index]))
        end = trials[-1].number
        axes.step([*numbers, end], [*so_far, so_far[-1]], where="post", color=BEST, linewidth=1.3, label="best so far")
        if failed:
            at, foot = [trial.number for trial in failed], axes.get_xaxis_transform()
            name = f"failed ({len(failed)})"
            axes.scatter(at, [0.02] * len(at), marker="|", color=FAILED, s=50, transform=foot, label=name)
        axes.set_ylabel(scale.title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _finish(axes)
    figure.axes[-1].set_xlabel("trial")
    legend(figure)
    return figure


def draw_curves(spec: "SweepSpec", trials: list[FrozenTrial]) -> "Figure | None":
    """Draw the first metric of all trials over their validations; None where none was reported.

    Args:
        spec: The sweep.
        trials: Its trials.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    having = [trial for trial in counted(trials) if trial.intermediate_values]
    if not having:
        return None
    reported = np.array([value for trial in having for value in trial.intermediate_values.values()])
    if not np.isfinite(reported).any():
        return None
    winners = {trial.number for trial in best(spec, trials)[:1]}
    scale = Values.fitting(spec, reported, 0)
    figure = Figure(figsize=(9.0, 4.2), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    thin = 0.9 if len(having) < 60 else 0.5
    kinds = {
        "completed": (DONE, thin, [t for t in in_state(having, TrialState.COMPLETE) if t.number not in winners]),
        "pruned": (PRUNED, thin, in_state(having, TrialState.PRUNED)),
        "failed": (FAILED, thin, in_state(having, TrialState.FAIL)),
        "running": (OTHER, thin, in_state(having, TrialState.RUNNING)),
        "best": (BEST, 2.2, [trial for trial in having if trial.number in winners]),
    }
    for name, (colour, width, chosen) in kinds.items():
        end = "x" if name in ("pruned", "failed") else None
        for trial in chosen:
            curve = np.array([[number + 1, value] for number, value in sorted(trial.intermediate_values.items())])
            marker = "." if len(curve) == 1 else None
            axes.plot(*curve.T, color=colour, linewidth=width, marker=marker, markersize=4, alpha=0.8)
            if end:
                axes.plot(*curve[-1], marker=end, color=colour, markersize=5)
        if chosen:
            text = f"best (trial {chosen[0].number})" if name == "best" else f"{name} ({len(chosen)})"
            axes.plot([], [], color=colour, linewidth=width, marker=end, label=text)
    finite = reported[np.isfinite(reported)]
    top, bottom = scale.shown(finite).max(), scale.shown(finite).min()
    margin = 0.05 * (top - bottom) or 0.5
    axes.set_ylim(bottom - margin, top + margin)
    axes.set_ylabel(scale.title)
    axes.set_xlabel("validation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes)
    legend(figure)
    return figure


def draw_pareto(spec: "SweepSpec", trials: list[FrozenTrial]) -> "Figure":
    """Draw each metric over each other and mark the trials that no other beats in all of them.

    Args:
        spec: The sweep, of two or more metrics.
        trials: Its trials, at least one of them completed.
    """
    from matplotlib.figure import Figure

    pairs = list(combinations(range(len(spec.metrics)), 2))
    columns = min(len(pairs), 3)
    rows = -(-len(pairs) // columns)
    size = (7.0, 5.0) if len(pairs) == 1 else (3.8 * columns, 3.5 * rows + 0.4)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    front = best(spec, trials)
    behind = [trial for trial in completed(trials) if trial not in front]
    for axes, (x, y) in zip(panels, pairs, strict=False):
        scales = [Values.of(spec, trials, x), Values.of(spec, trials, y)]
        for chosen, colour, name in ((behind, OTHER, "dominated"), (front, BEST, "Pareto front")):
            values = np.array([trial.values for trial in chosen]).reshape(-1, len(spec.metrics))[:, [x, y]].T
            beyond = scales[0].beyond(values[0]) | scales[1].beyond(values[1])
            points = np.array([scale.shown(row) for scale, row in zip(scales, values, strict=True)])
            name = f"{name} ({len(chosen)})"
            axes.scatter(*points[:, ~beyond], color=colour, s=18, label=name, zorder=2 + (chosen is front))
            if beyond.any():
                axes.scatter(*points[:, beyond], s=18, facecolors="none", edgecolors=colour, label="worse than drawn")
            if chosen is front and len(pairs) == 1:
                axes.step(*points, where="post" if scales[0].sign > 0 else "pre", color=BEST, linewidth=0.9)
                _number(axes, front, points.T)
        axes.set_xlabel(scales[0].title)
        axes.set_ylabel(scales[1].title)
        _finish(axes)
    for axes in panels:
        axes.set_axis_off()
    legend(figure)
    return figure


def _number(axes: "Axes", trials: list[FrozenTrial], points: np.ndarray) -> None:
    """Write numbers of trials beside points, shape (trial, 2), where there is room."""
    places = axes.transData.transform(points)
    taken: list[np.ndarray] = []
    for trial, point, place in zip(trials, points, places, strict=True):
        if all(abs(place - other).max() > 25 for other in taken):
            axes.annotate(str(trial.number), point, (4, 4), textcoords="offset points", fontsize=8)
            taken.append(place)


def _finish(axes: "Axes") -> None:
    axes.grid(alpha=0.3)
    axes.tick_params(labelsize=8)
    axes.set_axisbelow(True)
