"""What a sweep has brought: a line for each trial, a table, ``best.yaml``, and a page with Optuna's
figures.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import optuna
from markupsafe import Markup
from optuna.trial import FrozenTrial, TrialState

from litlab.commands.sweep.space import make_overlay
from litlab.commands.sweep.spec import Spec
from litlab.commands.sweep.study import list_counted
from litlab.errors import printable
from litlab.runs.masking import mask_command
from litlab.runs.page import Section, render_page, show
from litlab.runs.results import format_means
from litlab.util import team
from litlab.util.files import check_replaceable, write_output
from litlab.util.yaml import dump_config

BEST, PAGE, SCRIPT = "best.yaml", "report/report.html", "report/plotly.min.js"
WIDTH = 220  # pixels of a drawing over one setting, with room for its name
LEAST = 10  # completed trials from which on importances mean anything


def list_complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(states=(TrialState.COMPLETE,))


def show_values(*trials: FrozenTrial) -> list[str]:
    """Return the metric of each trial, of one that is not complete the last value before."""
    values = [
        trial.values[0]
        if trial.state == TrialState.COMPLETE
        else trial.intermediate_values.get(trial.last_step or 0)
        for trial in trials
    ]
    return format_means(values, [trial.user_attrs.get("deviation") for trial in trials])


def show_settings(trial: FrozenTrial) -> str:
    return " ".join(f"{name}={show_setting(value)}" for name, value in trial.params.items())


def show_setting(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def describe_trial(spec: Spec, trial: FrozenTrial) -> str:
    reason = trial.user_attrs.get("reason", f"{spec.metric} {show_values(trial)[0]}")
    return printable(
        f"trial {trial.number}: {trial.state.name.lower()}: {reason} ({show_settings(trial)})"
    )


def check_files(spec: Spec) -> None:
    """Refuse a sweep in whose folder something stands in the place of what it is to write."""
    for name in (BEST, PAGE, SCRIPT):
        check_replaceable(spec.folder / name)


def list_rows(spec: Spec, study: optuna.Study) -> tuple[list[str], list[list[str]]]:
    # The best first, then those without a value by their numbers
    sign = -1 if spec.direction == "maximize" else 1

    def turn(trial: FrozenTrial) -> tuple[bool, float]:
        is_complete = trial.state == TrialState.COMPLETE
        return not is_complete, sign * trial.values[0] if is_complete else trial.number

    rows, trials = [], sorted(list_counted(study), key=turn)
    for trial, value in zip(trials, show_values(*trials), strict=True):
        where = str(trial.user_attrs.get("reason", trial.user_attrs.get("folder", "")))
        rows.append(
            [
                str(trial.number),
                trial.state.name.lower(),
                value,
                show_settings(trial),
                where,
            ]
        )
    return ["trial", "state", spec.metric, "searched values", "folder, or why it failed"], rows


def write_best(spec: Spec, study: optuna.Study) -> Path:
    trial = study.best_trial
    others = " ".join(mask_command([*spec.flags(), *spec.arguments]))
    heading = f"# {describe_trial(spec, trial)}\n# found with {printable(others)}\n"
    file = spec.folder / BEST
    write_output(file, heading + dump_config(make_overlay(spec.space, trial.params)))
    return file


def write_report(spec: Spec, study: optuna.Study) -> Path:
    from plotly.offline import get_plotlyjs

    # A column for each setting
    trials = {str(trial.number): trial for trial in list_counted(study)}
    names = list(dict.fromkeys(chain(*(trial.params for trial in trials.values()))))
    header, rows = list_rows(spec, study)
    header[3:4] = names
    for row in rows:
        values = trials[row[0]].params
        row[3:4] = [show_setting(values[name]) if name in values else "-" for name in names]
    sections: list[Section] = [("Trials", [show.table(header, rows)])]

    # Optuna's figures; Plotly itself is one file beside the page, which so works offline.
    for title, figure, width in draw_figures(spec, study):
        figure.update_layout(
            title=None,
            template="plotly_white",
            paper_bgcolor="rgba(0,0,0,0)",  # the page's own, also where it is dark
            plot_bgcolor="rgba(0,0,0,0)",
            margin={"t": 30},
            legend={"orientation": "h"},
        )
        drawing = figure.to_html(
            full_html=False, include_plotlyjs=False, config={"responsive": True}
        )
        drawing = f'<div class="plot" style="min-width: {width}px">{drawing}</div>'
        sections.append((title, [Markup(f'<div class="scroll">{drawing}</div>')]))
    page = spec.folder / PAGE
    command = team.typed("sweep", "--config", str(spec.file), "--report")
    write_output(page, render_page(f"Sweep {spec.name}", sections, command, script="plotly.min.js"))
    write_output(spec.folder / SCRIPT, get_plotlyjs())
    return page


def draw_figures(spec: Spec, study: optuna.Study) -> Iterator[tuple[str, Any, int]]:
    """Yield title, figure, and the width in pixels from which on its texts don't overlap."""
    from optuna import visualization as plots

    metric = spec.metric
    history = plots.plot_optimization_history(study, target_name=metric)
    yield f"{metric} by trial ({spec.direction})", history, 0
    if len(list_complete(study)) >= LEAST:
        yield "Importance of the settings", plots.plot_param_importances(study), 0
    slices = plots.plot_slice(study, target_name=metric)
    yield f"{metric} over each setting", slices, WIDTH * len(spec.space)
    yield f"{metric} at each validation", plots.plot_intermediate_values(study), 0
