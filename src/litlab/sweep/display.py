"""A sweep while it runs: a table on a terminal, a line for each trial that ends elsewhere."""

import time
from datetime import datetime
from types import TracebackType

from optuna.trial import FrozenTrial, TrialState
from rich.console import RenderableType
from rich.live import Live

from litlab.sweep.results import best, settings
from litlab.sweep.spec import SweepSpec
from litlab.sweep.study import SweepStudy, counted
from litlab.sweep.table import progress_table
from litlab.util.commands import decimals, terminal

SECONDS_BETWEEN_LOOKS = 2.0


class Display:
    """Shows how a sweep stands, from `with` to its end.

    Args:
        spec: The sweep.
        study: Its study.
        until: Time (seconds since the epoch) from which on no trial is started; None for no limit.
    """

    def __init__(self, spec: SweepSpec, study: SweepStudy, until: float | None) -> None:
        self._spec = spec
        self._study = study
        self._until = datetime.fromtimestamp(until) if until is not None else None
        self._console = terminal()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._told = {trial.number for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()}
        self._next_look = 0.0

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._show()
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        """Looks at the trials, every two seconds at most."""
        if time.monotonic() >= self._next_look:
            self._show()
            self._next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(table(self._spec, self._study, self._until), refresh=True)
            return
        trials = self._study.get_trials(deepcopy=False)
        for trial in trials:
            if trial.state.is_finished() and trial.number not in self._told:
                self._told.add(trial.number)
                self._console.print(_line(self._spec, trial, trials), markup=False, soft_wrap=True)


def table(spec: SweepSpec, study: SweepStudy, until: datetime | None = None) -> RenderableType:
    """How a sweep stands now; for a command that starts trials until some local time, its time left too."""
    return progress_table(spec, study.get_trials(deepcopy=False), datetime.now(), until)


def _line(spec: SweepSpec, trial: FrozenTrial, trials: list[FrozenTrial]) -> str:
    """What a trial came to, and how far the sweep is."""
    if "replaced_by" in trial.user_attrs:
        return f"trial {trial.number}: goes on as trial {trial.user_attrs['replaced_by']}"
    if trial.state == TrialState.FAIL:
        outcome = f"failed: {trial.user_attrs.get('reason', 'no reason is known')}"
    else:
        values = ", ".join(f"{m} {decimals(v)}" for m, v in zip(spec.metrics, trial.values or [], strict=False))
        outcome = f"{'pruned' if trial.state == TrialState.PRUNED else 'done'} {values}".rstrip()
    ended = sum(other.state.is_finished() for other in counted(trials))
    found = best(spec, trials)
    so_far = f", best so far trial {found[0].number}" if found and len(spec.metrics) == 1 else ""
    return f"trial {trial.number}: {outcome} ({settings(spec, trial)}); {ended} of {spec.trials or 'any'}{so_far}"
