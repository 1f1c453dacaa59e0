"""The figures of a sweep's report: those of Optuna, with pruned and failed trials marked."""

import warnings
from collections.abc import Iterator
from html import escape
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import optuna.visualization as plots
from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from litlab.commands.sweep.results import best, completed, counted, in_state, last_value, losses, reason, settings
from litlab.commands.sweep.spec import SweepSpec

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

LEAST, FEW = 10, 50  # completed trials from which on importances mean anything, and more than a rough guide
BEST, PRUNED, FAILED, OTHER = "#d62728", "#ff7f0e", "#444444", "#1f77b4"


def figures(spec: SweepSpec, study: Study) -> Iterator[tuple[str, str, "Figure"]]:
    """Draw a study.

    Args:
        spec: The sweep.
        study: Its study, with at least one completed trial.

    Yields:
        Title, how to read it, and the figure.
    """
    trials = study.get_trials(deepcopy=False)
    for index, metric in enumerate(spec.metrics):
        caption = "Pruned trials are drawn at their last validation. Point at a failed one for the reason."
        yield f"History of {metric} ({spec.directions[index]})", caption, draw_history(spec, study, index)
    for pair in combinations(range(len(spec.metrics)), 2):
        names = [spec.metrics[index] for index in pair]
        figure = plots.plot_pareto_front(
            study, target_names=names, targets=lambda t, pair=pair: [t.values[i] for i in pair]
        )
        caption = "No other trial beats those of the Pareto front, which are red, in all metrics."
        yield " against ".join(names), caption, figure
    for index, metric in enumerate(spec.metrics):
        if len(completed(trials)) >= LEAST:
            rough = " A rough guide: few trials." if len(completed(trials)) < FEW else ""
            caption = f"What mattered for the better trials, in what was searched; not how to set it.{rough}"
            yield f"Importances for {metric}", caption, draw_importances(spec, study, index)
    yield "Settings and values", "Each line is a completed trial.", draw_settings(spec, study)
    for index, metric in enumerate(spec.metrics):
        figure = plots.plot_slice(study, target=lambda trial, index=index: trial.values[index], target_name=metric)
        yield f"{metric} over each setting", "Later trials are darker.", figure
    if any(trial.intermediate_values for trial in trials):
        caption = "The best trial is red, pruned ones orange."
        yield f"{spec.metrics[0]} at each validation", caption, draw_curves(spec, study)


def draw_history(spec: SweepSpec, study: Study, index: int) -> "Figure":
    """Draw the values of one metric in the order of the trials, with the best so far, pruned and failed ones."""
    from plotly.graph_objects import Figure

    trials = counted(study.get_trials(deepcopy=False))
    done, failed = completed(trials), in_state(trials, TrialState.FAIL)
    pruned = [trial for trial in in_state(trials, TrialState.PRUNED) if trial.intermediate_values and index == 0]
    values = [trial.values[index] for trial in done]
    groups = [
        ("completed", OTHER, "circle", done, values),
        ("pruned", PRUNED, "x", pruned, [last_value(trial) for trial in pruned]),
        ("failed", FAILED, "x", failed, [min(values)] * len(failed)),
    ]
    figure = Figure()
    for name, color, symbol, group, heights in groups:
        marker, texts = {"color": color, "symbol": symbol}, [_hover(spec, trial) for trial in group]
        numbers, name = [trial.number for trial in group], f"{name} ({len(group)})"
        figure.add_scatter(x=numbers, y=heights, mode="markers", marker=marker, name=name, text=texts)
    so_far = np.minimum.accumulate(losses(spec, done)[:, index]) * (-1 if spec.directions[index] == "maximize" else 1)
    numbers = [*(trial.number for trial in done), trials[-1].number]
    figure.add_scatter(x=numbers, y=[*so_far, so_far[-1]], line={"shape": "hv", "color": BEST}, name="best so far")
    return figure.update_layout(xaxis_title="trial", yaxis_title=spec.metrics[index])


def draw_importances(spec: SweepSpec, study: Study, index: int) -> "Figure":
    """Draw how much each setting mattered for one of the metrics."""
    sign = -1 if spec.directions[index] == "maximize" else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it looks for low values
        return plots.plot_param_importances(
            study, target=lambda trial: sign * trial.values[index], target_name=spec.metrics[index]
        )


def draw_curves(spec: SweepSpec, study: Study) -> "Figure":
    """Draw the first metric of all trials but failed ones over their validations."""
    trials = study.get_trials(deepcopy=False)
    winners = {trial.number for trial in best(spec, trials)[:1]}

    def style(curve: "Scatter") -> None:
        trial = trials[int(str(curve.name).removeprefix("Trial"))]
        is_best = trial.number in winners
        color = BEST if is_best else PRUNED if trial.state == TrialState.PRUNED else OTHER
        curve.update(line={"color": color, "width": 3 if is_best else 1}, hovertext=_hover(spec, trial))

    return plots.plot_intermediate_values(study).for_each_trace(style)


def draw_settings(spec: SweepSpec, study: Study) -> "Figure":
    """Draw each completed trial as a line from its values to its settings, with their whole names."""
    figure = plots.plot_parallel_coordinate(study)
    settings = sorted({name for trial in completed(study.get_trials(deepcopy=False)) for name in trial.params})
    names = [name.replace(".", ".<br>") for name in [*spec.metrics, *settings]]
    return figure.update_xaxes(ticktext=names)


def _hover(spec: SweepSpec, trial: FrozenTrial) -> str:
    """Return what is shown of a trial where the mouse points at it."""
    failure = [escape(reason(trial))] if trial.state == TrialState.FAIL else []
    return "<br>".join([f"trial {trial.number}", *settings(spec, trial).split(), *failure])
