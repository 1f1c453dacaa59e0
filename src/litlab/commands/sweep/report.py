"""The report of a sweep: one HTML page that needs no other file and no network."""

import io
from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path

from optuna import Study
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from litlab.commands.sweep.results import best, completed, counted, in_state, ranked, reason, requeued
from litlab.commands.sweep.spec import SweepSpec
from litlab.commands.sweep.table import heading, rows
from litlab.errors import UserError
from litlab.runs.folder import write_text

BEST = 10  # rows; a Pareto front may have more
WIDTH = 200  # of the table, in characters
STYLE = """
:root { color-scheme: light dark; } body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; }
h2 { margin-top: 2.5rem; } p.note { opacity: 0.75; } pre, .wide { overflow-x: auto; } summary { cursor: pointer; }
"""


def write_report(spec: SweepSpec, study: Study) -> Path:
    """Write the page of a sweep to ``report/report.html`` in its folder, in place of an earlier one.

    Args:
        spec: The sweep.
        study: Its trials.

    Returns:
        The page.

    Raises:
        UserError: If no trial was completed, or the file can't be written.
    """
    trials = study.get_trials(deepcopy=False)
    if not completed(trials):
        raise UserError(f"sweep {spec.name}: no trial has completed yet; there is nothing to report.")
    page = spec.folder / "report" / "report.html"
    write_text(page, report_page(spec, study, datetime.now()))
    return page


def report_page(spec: SweepSpec, study: Study, now: datetime) -> str:
    """Return the page as text.

    Args:
        spec: The sweep.
        study: Its trials, at least one of them completed.
        now: The local time.
    """
    from plotly.offline import get_plotlyjs

    trials = study.get_trials(deepcopy=False)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(spec.name)}: sweep</title><style>{STYLE}</style>",
        f"<script>{get_plotlyjs()}</script></head><body>",
        f"<h1>Sweep {escape(spec.name)}</h1>",
        f'<p class="note">{now:%Y-%m-%d %H:%M}</p>',
        _table(spec, trials, now),
        *_figures(spec, study),
        *_failures(trials),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(spec: SweepSpec, trials: list[FrozenTrial], now: datetime) -> str:
    """Return the progress of the sweep as in a terminal, with more of the best trials."""
    console = Console(record=True, file=io.StringIO(), width=WIDTH)
    console.print(*heading(spec, trials, now), "", sep="\n")
    shown = ranked(spec, trials)[: max(BEST, len(best(spec, trials)))]
    console.print(rows(spec, shown, now, wide=True))
    if len(completed(trials)) > len(shown):
        console.print(f"{len(completed(trials)) - len(shown)} more were completed.")
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _figures(spec: SweepSpec, study: Study) -> Iterator[str]:
    from litlab.commands.sweep.figures import figures

    for title, caption, figure in figures(spec, study):
        figure.update_layout(title=None, template="plotly_white", margin={"t": 30})
        yield f'<h2>{escape(title)}</h2><p class="note">{escape(caption)}</p>'
        yield f'<div class="wide">{figure.to_html(full_html=False, include_plotlyjs=False)}</div>'


def _failures(trials: list[FrozenTrial]) -> Iterator[str]:
    failed = in_state(counted(trials), TrialState.FAIL)
    if failed:
        yield f"<h2>Failed trials ({len(failed)})</h2>"
    for trial in failed:
        tail = "\n".join(trial.user_attrs.get("tail", []))
        yield f"<details><summary>trial {trial.number}: {escape(reason(trial))}</summary>"
        yield f"<pre>{escape(tail) or 'no output'}</pre></details>"
    if again := requeued(trials):
        yield f'<p class="note">{again}.</p>'
