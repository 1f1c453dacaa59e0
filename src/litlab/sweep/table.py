"""How a sweep stands, as a table in the terminal or plain lines in a log."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from litlab.sweep.results import best, in_state, last_value, ranked, run_folders, settings, spread, validations
from litlab.sweep.study import counted, size
from litlab.util.commands import decimals
from litlab.util.tables import Fitted

if TYPE_CHECKING:
    from litlab.sweep.spec import SweepSpec

NAMES = {
    TrialState.COMPLETE: ("done", "green"),
    TrialState.PRUNED: ("pruned", "yellow"),
    TrialState.FAIL: ("failed", "red"),
    TrialState.RUNNING: ("running", "cyan"),
    TrialState.WAITING: ("waiting", "blue"),
}
RUNNING, RECENT = 16, 6  # rows of each kind
WIDE = 130  # columns of a terminal from which on the rows say what was searched


def progress_table(
    spec: "SweepSpec", trials: list[FrozenTrial], now: datetime, until: datetime | None = None
) -> RenderableType:
    """How a sweep stands: counts, time left, the best so far, a row for each running and each recent trial.

    Where none runs, the rows are those of the best.

    Args:
        spec: The sweep.
        trials: All its trials, those that were taken up again too.
        now: The local time without a zone, as Optuna keeps times.
        until: When no more trials are begun; None if there is no limit, or it is not known.
    """
    return _Progress(spec, trials, now, until)


class _Progress:
    """A renderable, as what it shows depends on the width."""

    def __init__(self, spec: "SweepSpec", trials: list[FrozenTrial], now: datetime, until: datetime | None) -> None:
        self.spec, self.trials, self.now, self.until = spec, trials, now, until

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Group(
            *_heading(self.spec, self.trials, self.now, self.until),
            "",
            Fitted(_rows(self.spec, self.trials, self.now, wide=options.max_width >= WIDE)),
            *_remarks(self.trials),
        )


def time_left(
    spec: "SweepSpec", trials: list[FrozenTrial], now: datetime, until: datetime | None = None
) -> timedelta | None:
    """How long the sweep will take, if trials go on taking as long as they did on average.

    Args:
        spec: The sweep.
        trials: Its trials.
        now: The local time without a zone.
        until: When no more trials are begun; None if there is no limit, or it is not known.

    Returns:
        None where nothing tells: no trial runs, or none has ended and there is no limit of time.
    """
    running = in_state(counted(trials), TrialState.RUNNING)
    took = [trial.duration for trial in counted(trials) if trial.state.is_finished() and trial.duration]
    if not running:
        return None
    left: list[timedelta] = []
    if until is not None:
        left.append(max(until - now, timedelta()))
    if size(spec) is not None and took:
        mean = sum(took, timedelta()) / len(took)
        begun = [max(mean - _age(trial, now), timedelta()) for trial in running]
        to_come = max(_to_come(spec, trials), 0) * mean
        left.append((to_come + sum(begun, timedelta())) / len(running))
    return min(left, default=None)


def _to_come(spec: "SweepSpec", trials: list[FrozenTrial]) -> int:
    """Trials of the budget that no worker has begun."""
    begun = [trial for trial in counted(trials) if trial.state != TrialState.WAITING]
    return (size(spec) or 0) - len(begun)


def _age(trial: FrozenTrial, now: datetime) -> timedelta:
    return now - (trial.datetime_start or now)


def _heading(
    spec: "SweepSpec", trials: list[FrozenTrial], now: datetime, until: datetime | None
) -> Iterator[RenderableType]:
    goals = ", ".join(f"{m} ({d})" for m, d in zip(spec.metrics, spec.directions, strict=True))
    yield Text.assemble((spec.name, "bold"), f": {goals}, in {spec.folder}")

    begun = counted(trials)
    line = Text(f"{sum(trial.state.is_finished() for trial in begun)}")
    line.append("" if size(spec) is None else f" of {size(spec)}").append(" ended (")
    for state, (name, colour) in NAMES.items():
        number = len(in_state(begun, state))
        line.append(f"{number} {name}", style=colour if number else "dim")
        line.append("), " if state == TrialState.FAIL else ", ")
    line.right_crop(len(", "))
    yield line

    ended = size(spec) is not None and _to_come(spec, trials) <= 0
    if in_state(begun, TrialState.RUNNING):
        left = time_left(spec, trials, now, until)
        yield Text(f"time left: {'not known yet' if left is None else f'about {_time(left)}'}")
    else:
        yield Text("finished" if ended else "no trial is running", style="bold" if ended else "")

    found = best(spec, trials)
    if not found:
        yield Text("no trial completed yet", style="dim")
    elif len(spec.metrics) > 1:
        yield Text(f"best: a Pareto front of {len(found)} trials")
    for trial in found[:RECENT]:
        rank = "best: " if len(spec.metrics) == 1 else ""
        values = ", ".join(f"{metric} {_with_spread(trial, index)}" for index, metric in enumerate(spec.metrics))
        yield Text.assemble(rank, (values, "bold green"), f", trial {trial.number}")
        yield Padding(Text(settings(spec, trial)), (0, 0, 0, 6))


def _with_spread(trial: FrozenTrial, metric: int) -> str:
    deviation = spread(trial, metric)
    return decimals(trial.values[metric]) + ("" if deviation is None else f" ± {decimals(deviation)}")


def _rows(spec: "SweepSpec", trials: list[FrozenTrial], now: datetime, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("trial", justify="right")
    table.add_column("state")
    table.add_column("validations", justify="right")
    for metric in spec.metrics:
        table.add_column(Text(metric), justify="right", overflow="fold")
    table.add_column("min", justify="right", no_wrap=True)
    table.add_column("run, or why it failed", overflow="fold")
    if wide:
        table.add_column("searched values", overflow="fold")
    for trial in _shown(spec, counted(trials), now):
        name, colour = NAMES[trial.state]
        reason = trial.user_attrs.get("reason", "no reason was recorded")
        where = reason if trial.state == TrialState.FAIL else ", ".join(run_folders(spec, trial)[-1:])
        minutes = (trial.duration or _age(trial, now)).total_seconds() / 60
        cells = [
            Text(str(trial.number)),
            Text(name, style=colour),
            Text(str(validations(trial))),
            *(Text(text) for text in _values(spec, trial)),
            Text(f"{minutes:.{1 if minutes >= 1 else 2}f}"),
            Text(where),
            Text(settings(spec, trial), style="dim"),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def _shown(spec: "SweepSpec", trials: list[FrozenTrial], now: datetime) -> list[FrozenTrial]:
    """While trials run, these and the last that ended; then the best, and the last of the others."""
    running = in_state(trials, TrialState.RUNNING)
    ended = [trial for trial in trials if trial.state.is_finished()]
    recent = sorted(ended, key=lambda trial: trial.datetime_complete or now, reverse=True)
    if running:
        return running[:RUNNING] + recent[:RECENT]
    ranks = ranked(spec, trials)[:RECENT]
    return ranks + [trial for trial in recent if trial.state != TrialState.COMPLETE][: RECENT // 2]


def _values(spec: "SweepSpec", trial: FrozenTrial) -> list[str]:
    """The outcome by metric; for a trial that has none the first metric at its last validation."""
    if trial.state == TrialState.COMPLETE:
        return list(map(decimals, trial.values))
    return [decimals(last_value(trial)), *[""] * (len(spec.metrics) - 1)]


def _remarks(trials: list[FrozenTrial]) -> Iterator[Text]:
    running = len(in_state(counted(trials), TrialState.RUNNING))
    if running > RUNNING:
        yield Text(f"and {running - RUNNING} more are running", style="dim")
    again = [f"{trial.user_attrs['replaces']} as {trial.number}" for trial in trials if "replaces" in trial.user_attrs]
    if again:
        yield Text(f"taken up again, as their worker was gone: trial {', '.join(again)}", style="dim")


def _time(left: timedelta) -> str:
    minutes = left.total_seconds() / 60
    if minutes < 1:
        return "1 min"
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
