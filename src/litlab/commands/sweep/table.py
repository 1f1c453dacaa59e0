"""The progress of a sweep: a table in a terminal; elsewhere, a line for each trial that has ended."""

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from optuna import Study
from optuna.trial import FrozenTrial, TrialState
from rich.console import Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from litlab.commands.sweep import results
from litlab.commands.sweep.results import best, counted, in_state, last_value, ranked, reason, requeued, settings
from litlab.commands.sweep.spec import SweepSpec
from litlab.util.text import decimals, terminal

STATES = {
    TrialState.COMPLETE: ("done", "green"),
    TrialState.PRUNED: ("pruned", "yellow"),
    TrialState.FAIL: ("failed", "red"),
    TrialState.RUNNING: ("running", "cyan"),
    TrialState.WAITING: ("waiting", "blue"),
}
RUNNING, RECENT = 16, 6  # rows of running trials, and of others
SEARCHED, WHERE = "searched values", "run, or why it failed"  # columns
WIDE = 130  # columns of a terminal from which on the rows show the searched values
SECONDS_BETWEEN_LOOKS = 2.0


@contextlib.contextmanager
def display(spec: SweepSpec, study: Study, until: float | None) -> Iterator[Callable[[], None]]:
    """Show the progress of a sweep, by a function to call often, which looks at the trials every two seconds.

    Args:
        spec: The sweep.
        study: Its study.
        until: Time (seconds since the epoch) from which on no trial is started; None for no limit.
    """
    console = terminal()
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    end = datetime.fromtimestamp(until) if until is not None else None
    shown = {trial.number for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()}
    next_look = 0.0

    def show() -> None:
        trials = study.get_trials(deepcopy=False)
        if live is not None:
            live.update(progress_table(spec, trials, datetime.now(), end, console.width), refresh=True)
            return
        for trial in trials:
            if trial.state.is_finished() and trial.number not in shown:
                shown.add(trial.number)
                console.print(_line(spec, trial, trials), markup=False, soft_wrap=True)

    def update() -> None:
        nonlocal next_look
        if time.monotonic() >= next_look:
            show()
            next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS

    with live or contextlib.nullcontext():
        yield update
        show()


def progress_table(
    spec: SweepSpec, trials: list[FrozenTrial], now: datetime, until: datetime | None = None, width: int = WIDE
) -> Group:
    """Return the progress of a sweep: counts, time left, the best so far, a row for each running and recent trial.

    When no trial is running, the rows show the best ones.

    Args:
        spec: The sweep.
        trials: All its trials, those that were requeued too.
        now: The local time without a zone, as Optuna keeps times.
        until: When no more trials are started; None if there is no limit, or it is not known.
        width: Of the terminal.
    """
    lines = [*heading(spec, trials, now, until), ""]
    lines.append(rows(spec, _shown(spec, counted(trials), now), now, wide=width >= WIDE))
    running = len(in_state(counted(trials), TrialState.RUNNING))
    if running > RUNNING:
        lines.append(Text(f"and {running - RUNNING} more are running", style="dim"))
    if again := requeued(trials):
        lines.append(Text(again, style="dim"))
    return Group(*lines)


def time_left(
    spec: SweepSpec, trials: list[FrozenTrial], now: datetime, until: datetime | None = None
) -> timedelta | None:
    """Return how long the sweep will take, if trials take as long as they did on average; None if that is not known."""
    running = in_state(counted(trials), TrialState.RUNNING)
    took = [trial.duration for trial in counted(trials) if trial.state.is_finished() and trial.duration]
    left = [max(until - now, timedelta())] if until is not None else []
    if spec.trials is not None and took and running:
        mean = sum(took, timedelta()) / len(took)
        started = [max(mean - _age(trial, now), timedelta()) for trial in running]
        left.append((_to_start(spec, trials) * mean + sum(started, timedelta())) / len(running))
    return min(left, default=None) if running else None


def heading(
    spec: SweepSpec, trials: list[FrozenTrial], now: datetime, until: datetime | None = None
) -> Iterator[RenderableType]:
    """Yield the lines above the table."""
    goals = ", ".join(f"{m} ({d})" for m, d in zip(spec.metrics, spec.directions, strict=True))
    yield Text.assemble((spec.name, "bold"), f": {goals}, in {spec.folder}")

    numbers = {state: len(in_state(counted(trials), state)) for state in STATES}
    counts = [(f"{n} {STATES[state][0]}", STATES[state][1] if n else "dim") for state, n in numbers.items()]
    done, pruned, failed, running, waiting = counts
    of_budget = "" if spec.trials is None else f" of {spec.trials}"
    ended = sum(n for state, n in numbers.items() if state.is_finished())
    yield Text.assemble(f"{ended}{of_budget} ended (", done, ", ", pruned, ", ", failed, "), ", running, ", ", waiting)

    if numbers[TrialState.RUNNING]:
        left = time_left(spec, trials, now, until)
        yield Text(f"time left: {'not known yet' if left is None else f'about {_time(left)}'}")
    else:
        finished = spec.trials is not None and _to_start(spec, trials) == 0
        yield Text("finished" if finished else "no trial is running", style="bold" if finished else "")

    found = best(spec, trials)
    if not found:
        yield Text("no trial completed yet", style="dim")
    elif len(spec.metrics) > 1:
        yield Text(f"best: a Pareto front of {len(found)} trials")
    for trial in found[:RECENT]:
        rank = "best: " if len(spec.metrics) == 1 else ""
        values = ", ".join(f"{m} {value}" for m, value in zip(spec.metrics, _values(spec, trial), strict=True))
        yield Text.assemble(rank, (values, "bold green"), f", trial {trial.number}")
        yield Padding(Text(settings(spec, trial)), (0, 0, 0, 6))


def rows(spec: SweepSpec, trials: list[FrozenTrial], now: datetime, wide: bool) -> Table:
    """Return a table with a row for each of some trials; a wide one shows the searched values."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for header in ("trial", "state", "validations", *spec.metrics, "min", WHERE, *([SEARCHED] if wide else [])):
        justify = "left" if header in ("state", WHERE, SEARCHED) else "right"
        table.add_column(Text(header), justify=justify, overflow="fold", no_wrap=header in spec.metrics)
    for trial in trials:
        name, color = STATES[trial.state]
        where = reason(trial) if trial.state == TrialState.FAIL else results.last_run(spec, trial)
        minutes = (trial.duration or _age(trial, now)).total_seconds() / 60
        cells = [
            Text(str(trial.number)),
            Text(name, style=color),
            Text(str(len(trial.intermediate_values))),
            *map(Text, _values(spec, trial)),
            Text(f"{minutes:.{1 if minutes >= 1 else 2}f}"),
            Text(where),
            Text(settings(spec, trial), style="dim"),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def _line(spec: SweepSpec, trial: FrozenTrial, trials: list[FrozenTrial]) -> str:
    """Say how a trial ended, and how far the sweep is."""
    for other in trials:
        if other.user_attrs.get("replaces") == trial.number:
            return f"trial {trial.number}: continues as trial {other.number}"
    if trial.state == TrialState.FAIL:
        outcome = f"failed: {reason(trial)}"
    else:
        values = ", ".join(f"{m} {decimals(v)}" for m, v in zip(spec.metrics, trial.values or [], strict=False))
        outcome = f"{'pruned' if trial.state == TrialState.PRUNED else 'done'} {values}".rstrip()
    ended = sum(other.state.is_finished() for other in counted(trials))
    found = best(spec, trials)
    so_far = f", best so far trial {found[0].number}" if found and len(spec.metrics) == 1 else ""
    return f"trial {trial.number}: {outcome} ({settings(spec, trial)}); {ended} of {spec.trials or 'any'}{so_far}"


def _shown(spec: SweepSpec, trials: list[FrozenTrial], now: datetime) -> list[FrozenTrial]:
    """While trials run, these and the last that ended; then the best, and the last of the others."""
    running = in_state(trials, TrialState.RUNNING)
    ended = [trial for trial in trials if trial.state.is_finished()]
    recent = sorted(ended, key=lambda trial: trial.datetime_complete or now, reverse=True)
    if running:
        return running[:RUNNING] + recent[:RECENT]
    others = [trial for trial in recent if trial.state != TrialState.COMPLETE]
    return ranked(spec, trials)[:RECENT] + others[: RECENT // 2]


def _values(spec: SweepSpec, trial: FrozenTrial) -> list[str]:
    """Return the values by metric; of a trial that has none, the first metric at its last validation."""
    if trial.state != TrialState.COMPLETE:
        return [decimals(last_value(trial)), *[""] * (len(spec.metrics) - 1)]
    spreads = [results.spread(trial, index) for index in range(len(spec.metrics))]
    return [
        decimals(value) + ("" if deviation is None else f" ± {decimals(deviation)}")
        for value, deviation in zip(trial.values, spreads, strict=True)
    ]


def _to_start(spec: SweepSpec, trials: list[FrozenTrial]) -> int:
    """Return how many trials of the budget nobody has started."""
    return max((spec.trials or 0) - sum(trial.state != TrialState.WAITING for trial in counted(trials)), 0)


def _age(trial: FrozenTrial, now: datetime) -> timedelta:
    return now - (trial.datetime_start or now)


def _time(left: timedelta) -> str:
    minutes = left.total_seconds() / 60
    return f"{max(minutes, 1):.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
