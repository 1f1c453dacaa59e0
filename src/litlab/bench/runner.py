"""Runs trials, one after another, within a time budget."""

import math
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from litlab.bench.changes import Change, Changes
from litlab.bench.measurement import Measurement, Trial
from litlab.sweep.processes import Stop, last_lines, reason, run
from litlab.util.team import package

SHARE = 40  # of the budget, for the timed steps of a trial
LEAST_SECONDS, MOST_SECONDS = 2.0, 20.0  # for them
LONGEST = 3  # trials that may use up the whole budget
IMPORT_SECONDS = 600.0
PEAK_SECONDS = 60.0  # that finding the peak of a device may take


class Shows(Protocol):
    """Shows trials."""

    def begin(self, changes: Changes) -> None:
        """Show which one runs."""

    def end(self, trial: Trial) -> None:
        """Show what one has come to."""


class Runner:
    """Run an experiment with changes.

    Args:
        arguments: The command line of ``fit``.
        seconds: The budget.
        folder: For logs and the compiler's cache.
        stop: Whether to stop.
        display: Shows each trial when it begins and when it has ended.
    """

    def __init__(self, arguments: list[str], seconds: float, folder: Path, stop: Stop, display: Shows) -> None:
        self.trials: list[Trial] = []
        self.facts: dict[str, Any] = {}  # what the first trial has found of the experiment and the machine
        self.peaks: dict[str, float] = {}  # operations per second of the device, by precision
        self._arguments = arguments
        self._seconds = min(max(seconds / SHARE, LEAST_SECONDS), MOST_SECONDS)
        self._budget = seconds
        self._end = time.monotonic() + seconds
        self._folder = folder
        self._stop = stop
        self._display = display
        self._usual = math.inf  # seconds that a trial takes: the least of those so far

    @property
    def left(self) -> float:
        """Seconds that are left of the budget."""
        return self._end - time.monotonic()

    @property
    def heading(self) -> str:
        """What is measured, where."""
        if not self.facts:
            return "bench"
        hardware = self.facts["hardware"]
        name = hardware.get("device_name") or f"{hardware['cpu']}, {hardware['cores']} cores"
        return f"{self.facts['experiment']}: one process on {hardware['device']}, {name}"

    def has_time(self, trials: int) -> bool:
        """Return whether so many trials fit in, if they take as long as the shortest one so far."""
        return self.left > trials * self._usual

    def measure(self, changes: Changes, reserve: int = 0) -> Trial:
        """Run a trial and keep it.

        Args:
            changes: The changes.
            reserve: Number of trials that must fit in after it; it is killed if it takes that time, too.

        Raises:
            litlab.sweep.processes.Unfinished: If the command is to stop.
        """
        self._display.begin(changes)
        if not self.facts:
            run(_nothing, hear=print, stop=self._stop, stall_seconds=IMPORT_SECONDS)
        began = time.monotonic()
        limit = self.left - reserve * self._usual if reserve else self.left
        if self.facts:  # one that compiles for very long is not to use up all of it
            limit = min(limit, max(self._budget / LONGEST, 3 * self._usual))
        limit = max(1.0, limit)
        log = self._folder / f"{len(self.trials)}.log"
        arguments = [*self._arguments, *(change.flag for change in changes)]
        heard: dict[str, Any] = {}
        status = run(
            _trial, package(), arguments, log, self._seconds, self.facts.get("plan"),
            hear=heard.update, stop=self._stop, stall_seconds=limit, seconds_to_save=0.0,
        )  # fmt: skip
        tail = last_lines(log)
        if "measured" in heard:
            trial = Trial(changes, Measurement(**heard.pop("measured")))
            self._usual = min(self._usual, time.monotonic() - began)
            if not self.facts:
                uncounted = [] if status in (0, None) else [reason(status, tail)]  # it failed after what it measured
                self.facts = {"flops_per_sample": 0.0, "not_counted": uncounted, **heard}
        elif status is None:
            trial = Trial(changes, reason=f"not done within {limit:.0f} s")
        else:
            trial = Trial(changes, reason=reason(status, tail), tail=tail)
        self._keep(trial)
        if trial.measured is not None and trial.measured.precision not in self.peaks:
            self._find_peak(trial.measured.precision)
        return trial

    def skip(self, change: Change, why: str) -> None:
        """Keep a change that is not tried.

        Args:
            change: The change.
            why: The reason.
        """
        self._keep(Trial((change,), reason=f"not tried: {why}"))

    def _keep(self, trial: Trial) -> None:
        self.trials.append(trial)
        if self.facts:  # else the command ends with the reason
            self._display.end(trial)

    def _find_peak(self, precision: str) -> None:
        """Find out what the device can do at a precision, in a process of its own."""
        peak: list[float] = []
        run(
            _peak, self.facts["hardware"]["device"], precision, self.facts["matmul"],
            hear=peak.append, stop=self._stop, stall_seconds=PEAK_SECONDS, seconds_to_save=0.0,
        )  # fmt: skip
        self.peaks[precision] = peak[0] if peak else math.nan


def _nothing(connection: Connection) -> None:
    """Wait until the fork server has done its imports, which are no part of a trial."""


def _trial(connection: Connection, *arguments: Any) -> None:
    """Import what a trial needs in its own process: the command itself does without torch."""
    from litlab.bench.trial import run_trial

    run_trial(connection, *arguments)


def _peak(connection: Connection, *arguments: Any) -> None:
    """Import what is needed, as `_trial` does."""
    from litlab.bench.trial import report_peak

    report_peak(connection, *arguments)
