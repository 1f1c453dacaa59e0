"""What a sweep has brought: a line for each trial, a table, ``best.yaml``, and a page with Optuna's figures."""

from collections.abc import Iterator
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any

import optuna
import yaml
from optuna.trial import FrozenTrial, TrialState

from litlab.commands.sweep.space import make_overlay
from litlab.commands.sweep.spec import Spec
from litlab.commands.sweep.study import list_counted
from litlab.errors import UserError, printable
from litlab.runs.folder import write_text
from litlab.runs.masking import mask_command
from litlab.runs.results import plus_minus
from litlab.runs.table import show_table
from litlab.util.text import decimals

LEAST = 10  # completed trials from which on importances mean anything
STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; } .wide > div { min-width: 44rem; }
"""


def rank(spec: Spec, study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that count: the best ones, those that were completed by the first metric, then the others."""
    sign = -1 if spec.directions[0] == "maximize" else 1
    best = {trial.number for trial in find_best(spec, study)}

    def order(trial: FrozenTrial) -> Any:
        is_complete = trial.state == TrialState.COMPLETE
        return trial.number not in best, not is_complete, sign * trial.values[0] if is_complete else trial.number

    return sorted(list_counted(study), key=order)


def find_best(spec: Spec, study: optuna.Study) -> list[FrozenTrial]:
    """Return the best completed trial, if any; of several metrics the Pareto front."""
    if all(trial.state != TrialState.COMPLETE for trial in study.trials):
        return []
    return [study.best_trial] if len(spec.metrics) == 1 else study.best_trials


def show_values(spec: Spec, trial: FrozenTrial) -> list[str]:
    """Return each metric as its mean and deviation over the seeds, with the score where a spread was penalised."""
    if trial.state != TrialState.COMPLETE:
        return [decimals(trial.intermediate_values.get(trial.last_step or 0)), *["-"] * (len(spec.metrics) - 1)]
    cells = []
    for number, score in enumerate(trial.values):
        deviation = trial.user_attrs["deviations"][number]
        cell = plus_minus(trial.user_attrs["means"][number], deviation)
        cells.append(f"{cell} (score {decimals(score)})" if deviation and spec.spread else cell)
    return cells


def show_settings(trial: FrozenTrial) -> str:
    """Return the searched values of a trial in one line."""
    values = {name: decimals(value) if isinstance(value, float) else value for name, value in trial.params.items()}
    return " ".join(f"{name}={value}" for name, value in values.items())


def describe(spec: Spec, trial: FrozenTrial) -> str:
    """Say in one line how a trial has ended."""
    values = ", ".join(f"{metric} {cell}" for metric, cell in zip(spec.metrics, show_values(spec, trial), strict=True))
    reason = trial.user_attrs.get("reason", values)
    return printable(f"trial {trial.number}: {trial.state.name.lower()}: {reason} ({show_settings(trial)})")


def list_rows(spec: Spec, study: optuna.Study) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the table of trials, the best first."""
    rows = []
    for trial in rank(spec, study):
        minutes = "-" if trial.duration is None else f"{trial.duration.total_seconds() / 60:.1f}"
        where = trial.user_attrs.get("reason", trial.user_attrs.get("folder", ""))
        values = show_values(spec, trial)
        rows.append([str(trial.number), trial.state.name.lower(), *values, minutes, show_settings(trial), str(where)])
    return ["trial", "state", *spec.metrics, "min", "searched values", "folder, or why it failed"], rows


def print_trials(spec: Spec, study: optuna.Study) -> None:
    """Print the table of trials."""
    header, rows = list_rows(spec, study)
    limit = "" if spec.trials is None else f" of {spec.trials}"
    show_table(header, rows, f"Sweep {spec.name}: {len(rows)}{limit} trials")


def write_best(spec: Spec, study: optuna.Study) -> list[Path]:
    """Write the best settings as overlays for ``fit``: ``best.yaml``, of several metrics ``best_1.yaml`` and so on."""
    files = []
    for number, trial in enumerate(find_best(spec, study), start=1):
        file = spec.folder / ("best.yaml" if len(spec.metrics) == 1 else f"best_{number}.yaml")
        others = " ".join(mask_command([*spec.flags(), *spec.arguments]))
        heading = f"# {describe(spec, trial)}\n# found with {printable(others)}\n"
        write_text(file, heading + yaml.safe_dump(make_overlay(spec.space, trial.params), sort_keys=False))
        files.append(file)
    return files


def write_report(spec: Spec, study: optuna.Study) -> Path:
    """Write the page, ``report/report.html`` in the sweep's folder, and plotly's script beside it.

    Raises:
        UserError: If no trial was completed.
    """
    from plotly.offline import get_plotlyjs

    if not find_best(spec, study):
        raise UserError(f"sweep {spec.name}: no trial was completed; wait for one")
    header, rows = list_rows(spec, study)
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Sweep {spec.name}</title><style>{STYLE}</style><script src='plotly.min.js'></script></head>",
        f"<body><h1>Sweep {spec.name}</h1><div class='wide'><table><tr>{head}</tr>",
        *(f"<tr>{row}</tr>" for row in body),
        "</table></div>",
    ]
    for title, figure in draw_figures(spec, study):
        figure.update_layout(title=None, template="plotly_white", margin={"t": 30}, legend={"orientation": "h"})
        drawing = figure.to_html(full_html=False, include_plotlyjs=False, config={"responsive": True})
        parts.append(f"<h2>{escape(title)}</h2><div class='wide'>{drawing}</div>")
    page = spec.folder / "report" / "report.html"
    write_text(page, "\n".join([*parts, "</body></html>\n"]))
    write_text(page.with_name("plotly.min.js"), get_plotlyjs())
    return page


def draw_figures(spec: Spec, study: optuna.Study) -> Iterator[tuple[str, Any]]:
    """Yield title and figure: history, importances, settings, Pareto fronts, validations."""
    from optuna import visualization as plots

    complete = study.get_trials(states=(TrialState.COMPLETE,))
    for index, metric in enumerate(spec.metrics):
        goal: Any = {"target": lambda trial, index=index: trial.values[index], "target_name": metric}
        yield f"{metric} by trial ({spec.directions[index]})", plots.plot_optimization_history(study, **goal)
        if len(complete) >= LEAST:
            yield f"Importance of the settings for {metric}", plots.plot_param_importances(study, **goal)
        yield f"{metric} over each setting", plots.plot_slice(study, **goal)
        yield f"Settings and {metric}", plots.plot_parallel_coordinate(study, **goal)
    for first, second in combinations(range(len(spec.metrics)), 2):
        names = [spec.metrics[first], spec.metrics[second]]
        figure = plots.plot_pareto_front(
            study, target_names=names, targets=lambda trial, pair=(first, second): [trial.values[i] for i in pair]
        )
        yield " against ".join(names), figure
    if any(trial.intermediate_values for trial in complete):
        yield f"{spec.metrics[0]} at each validation", plots.plot_intermediate_values(study)
