"""What is shown of the trials: a bar and a line for each while they run, and a table at the end."""

import math
import time
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from litlab.bench.changes import Changes, title
from litlab.bench.measurement import Measurement, Trial, is_faster, merged, payback, speedup
from litlab.bench.runner import Runner
from litlab.util.text import decimals, print_table, terminal

LEARNS = " *"  # behind a change that changes what is learned
COLUMNS = ("step", "samples/s", "speed", "memory", "FLOP/s", "of peak", "start-up (first steps)", "pays back", "")


class Display:
    """Show how a bench proceeds, on a terminal with a bar of the time that is used.

    Args:
        seconds: The time budget.
    """

    def __init__(self, seconds: float) -> None:
        self._console = terminal()
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("starting", total=seconds)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Take the bar away."""
        self._bar.stop()

    def begin(self, changes: Changes) -> None:
        """Show which trial runs."""
        self._bar.update(self._task, description=escape(title(changes)), completed=time.monotonic() - self._began)

    def end(self, trial: Trial) -> None:
        """Show what a trial has come to."""
        if (measured := trial.measured) is None:
            what = trial.reason
        else:
            what = f"{decimals(measured.rate)} samples/s, a step {duration(measured.step)}"
        self._console.print(f"{title(trial.changes)}: {what}", markup=False, soft_wrap=True)

    def table(self, runner: Runner, first: Changes) -> None:
        """Show all trials, and what has to be known to read them.

        Args:
            runner: What has run them.
            first: The changes that the others are compared with.
        """
        if not runner.trials:
            return
        print_table(trials_table(runner, first), self._console)
        if any(change.learns for trial in runner.trials for change in trial.changes):
            self._console.print("* changes what is learned: in the overlay only with --allow", markup=False)
        if missing := runner.facts.get("not_counted"):
            self._console.print(f"FLOP/s: not counted: {', '.join(missing)}", markup=False, soft_wrap=True)


def trials_table(runner: Runner, first: Changes) -> Table:
    """Return the trials as a table, those of the same changes together.

    Args:
        runner: What has run them.
        first: The changes that the others are compared with.
    """
    trials = merged(runner.trials)
    base = next((trial.measured for trial in trials if trial.changes == first), None)
    table = Table(title=escape(runner.heading), title_justify="left")
    table.add_column("change")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name else "left")
    for trial in trials:
        name = title(trial.changes) + LEARNS * any(change.learns for change in trial.changes)
        if trial.measured is None:
            table.add_row(escape(name), *[""] * (len(COLUMNS) - 1), escape(trial.reason), style="dim")
        else:
            table.add_row(escape(name), *_cells(runner, trial.measured, base))
    return table


def _cells(runner: Runner, measured: Measurement, base: Measurement | None) -> list[str]:
    low, high = measured.quartiles
    flops = runner.facts["flops_per_sample"] * measured.rate
    peak = runner.peaks.get(measured.precision, math.nan)
    against = [""] * 3
    if base is not None and measured is not base:
        against = [f"{speedup(measured, base):.2f}", _epochs(payback(measured, base)), _verdict(measured, base)]
    return [
        f"{duration(measured.step)} ({duration(low)} to {duration(high)})",
        decimals(measured.rate),
        against[0],
        f"{measured.memory_gib:.2f} GiB",
        f"{flops / 1e9:,.3g} G" if flops else "-",
        f"{flops / peak:.0%}" if flops and math.isfinite(peak) else "-",
        f"{measured.startup:.1f} s ({measured.first_steps_seconds:.1f})",
        *against[1:],
    ]


def _verdict(new: Measurement, old: Measurement) -> str:
    if is_faster(new, old):
        return "faster" if payback(new, old) < old.epochs else f"faster, but the run has {old.epochs:.3g} epochs"
    return "slower" if is_faster(old, new) else "within the noise"


def _epochs(number: float) -> str:
    if math.isinf(number):
        return "never"
    return "at once" if number == 0 else "1 epoch" if number <= 1 else f"{math.ceil(number):,} epochs"


def duration(seconds: float) -> str:
    """Return a duration with three digits."""
    if seconds < 0.9995e-3:
        return f"{1e6 * seconds:.3g} µs"
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
