"""The page of a sweep's report: one HTML file that needs no other."""

import base64
from collections.abc import Iterator
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial, TrialState

from litlab.sweep.results import best, in_state, number, parameters, ranked, run_folders, spread
from litlab.sweep.study import counted, size
from litlab.util.commands import decimals

if TYPE_CHECKING:
    from litlab.sweep.spec import SweepSpec

BEST, FAILURES = 10, 50  # rows; a Pareto front may have more
PICTURES = {  # file: title and how to read it
    "history": ("History", "Values of the trials, and the best so far. Pruned trials stand at their last validation."),
    "pareto": ("Metrics against each other", "No other trial is better than those of the Pareto front in all metrics."),
    "importances": ("Importances", "What mattered, over the ranges that were searched; not how to set it."),
    "parallel": (
        "Settings and values",
        "Each line is a completed trial, from setting to setting down to its value of the first metric, dark for good "
        'ones. "unset": the trial has no such setting, as its condition is not met.',
    ),
    "slices": ("Value over each setting", "Later trials are darker. Trials without the setting are left out."),
    "curves": ("Curves", "The first metric at each validation. A cross is where a trial was pruned or failed."),
}
STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0.3rem; } h2 { margin-top: 2.5rem; } p.note { opacity: 0.75; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1.2rem; } dt { opacity: 0.7; } dd { margin: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0; }
th, td { border-bottom: 1px solid var(--line); } th { vertical-align: bottom; } tr.best td { font-weight: 600; }
td.number, th.number { text-align: right; }
img { max-width: 100%; background: white; border-radius: 6px; }
pre { background: var(--soft); padding: 0.7rem; border-radius: 6px; overflow-x: auto; }
details { margin: 0.4rem 0; overflow-wrap: anywhere; } summary { cursor: pointer; }
"""


def report_page(spec: "SweepSpec", trials: list[FrozenTrial], pictures: dict[str, bytes], now: datetime) -> str:
    """The page as text. It asks for nothing from elsewhere, and follows the reader's light or dark colours.

    Args:
        spec: The sweep.
        trials: Its trials, at least one of them completed.
        pictures: PNG files by their name in ``PICTURES``.
        now: The local time.
    """
    shown = {name: words for name, words in PICTURES.items() if name in pictures}
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(spec.name)}: sweep</title><style>{STYLE}</style></head><body>",
        f"<h1>Sweep {escape(spec.name)}</h1>",
        *_facts(spec, trials, now),
        *_best(spec, trials),
        *(_picture(*words, pictures[name]) for name, words in shown.items()),
        *_failures(trials),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _facts(spec: "SweepSpec", trials: list[FrozenTrial], now: datetime) -> Iterator[str]:
    names = {"completed": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    names |= {"running": TrialState.RUNNING, "waiting": TrialState.WAITING}
    counts = {name: len(in_state(counted(trials), state)) for name, state in names.items()}
    budget = [f"{size(spec)} trials"] if size(spec) is not None else []
    budget += [f"{spec.hours:g} hours a command"] if spec.hours is not None else []
    begun = [trial.datetime_start for trial in trials if trial.datetime_start]
    ended = [trial.datetime_complete for trial in trials if trial.datetime_complete]
    hours = sum(trial.duration.total_seconds() for trial in trials if trial.duration) / 3600
    facts = {
        "metric": ", ".join(f"{m} ({d})" for m, d in zip(spec.metrics, spec.directions, strict=True)),
        "budget": " or ".join(budget),
        "trials": ", ".join(f"{count} {name}" for name, count in counts.items() if count),
        "time": f"{_when(min(begun))} to {_when(max(ended))}, {hours:.3g} hours of trials" if begun and ended else "",
        "folder": str(spec.folder),
        "report of": _when(now),
    }
    if spec.seeds > 1:
        worse = f"made worse by {spec.spread:g} times their standard deviation"
        facts["seeds"] = f"{spec.seeds} fits a trial; the value is their mean, {worse}"
    yield "<dl>"
    yield from (f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
    yield "</dl>"


def _best(spec: "SweepSpec", trials: list[FrozenTrial]) -> Iterator[str]:
    front, order = best(spec, trials), ranked(spec, trials)
    rows = order[: max(BEST, len(front))]
    names = parameters(spec, rows)
    several = len(spec.metrics) > 1
    seeds = any(spread(trial, 0) is not None for trial in rows)
    yield f"<h2>{'Pareto front and the next best' if several else 'Best trials'}</h2>"
    yield '<div class="wide"><table><thead><tr>'
    yield _cell("trial", "th")
    for metric in spec.metrics:
        yield _cell(metric, "th")
        yield _cell("± over seeds", "th") if seeds else ""
    yield from (_cell(name, "th", number=False) for name in names)
    yield _cell("minutes", "th") + _cell("run folder", "th", number=False) + "</tr></thead><tbody>"
    for trial in rows:
        yield ('<tr class="best">' if trial in front else "<tr>") + _cell(str(trial.number))
        for index, value in enumerate(trial.values):
            yield _cell(decimals(value))
            yield _cell(decimals(spread(trial, index))) if seeds else ""
        yield from (_cell(number(trial.params[n]) if n in trial.params else "-", number=False) for n in names)
        minutes = trial.duration.total_seconds() / 60 if trial.duration else None
        yield _cell("-" if minutes is None else f"{minutes:.1f}")
        yield _cell(" ".join(run_folders(spec, trial)), number=False) + "</tr>"
    yield "</tbody></table></div>"
    if len(order) > len(rows):
        yield f'<p class="note">{len(order) - len(rows)} more were completed.</p>'


def _picture(title: str, caption: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    return (
        f'<h2>{title}</h2><p class="note">{escape(caption)}</p>'
        f'<div class="wide"><img alt="{title}" src="data:image/png;base64,{data}"></div>'
    )


def _failures(trials: list[FrozenTrial]) -> Iterator[str]:
    failed = in_state(counted(trials), TrialState.FAIL)
    if failed:
        yield f"<h2>Failed trials ({len(failed)})</h2>"
    for trial in failed[-FAILURES:]:
        reason = trial.user_attrs.get("reason", "no reason was recorded")
        tail = "\n".join(trial.user_attrs.get("tail", []))
        yield f"<details><summary>trial {trial.number}: {escape(reason)}</summary>"
        yield f"<pre>{escape(tail) or 'no output'}</pre></details>"
    if len(failed) > FAILURES:
        yield f'<p class="note">The last {FAILURES} of {len(failed)}.</p>'
    again = [f"{trial.user_attrs['replaces']} as {trial.number}" for trial in trials if "replaces" in trial.user_attrs]
    if again:
        yield f'<p class="note">Taken up again, as their worker was gone: trial {", ".join(again)}.</p>'


def _cell(text: str, tag: str = "td", number: bool = True) -> str:
    """A cell; names may be broken after dots and slashes."""
    broken = escape(text).replace(".", ".<wbr>").replace("/", "/<wbr>") if tag == "th" else escape(text)
    kind = "number" if number else "text"
    return f'<{tag} class="{kind}">{broken}</{tag}>'


def _when(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M")
