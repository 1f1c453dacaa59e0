"""The study of a sweep: an exact budget, trials that are requeued, and when there is nothing left to do."""

import warnings
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from litlab.commands.sweep.results import counted
from litlab.commands.sweep.samplers import make_pruner, make_sampler
from litlab.commands.sweep.space import grid
from litlab.commands.sweep.spec import SweepSpec
from litlab.commands.sweep.storage import Storage, has_storage, open_storage, storage_errors
from litlab.errors import UserError

DEATHS = 5  # of processes with the same trial; then it counts as failed
FINGERPRINT, ENDED = "fingerprint", "ended"  # user attributes of the study


class NothingLeft(Exception):
    """The budget is used up, and every trial has ended."""


class OthersRunning(Exception):
    """The budget is used up, but trials are running, which may have to be run again."""


class SweepStudy(optuna.Study):
    """An Optuna study with an exact budget, however many threads, commands and machines work on it.

    Args:
        spec: The sweep.
        storage: Where the study is.
    """

    def __init__(self, spec: SweepSpec, storage: Storage) -> None:
        super().__init__(spec.name, storage, sampler=make_sampler(spec.sampler), pruner=make_pruner(spec.pruner))
        self.spec = spec
        self.storage = storage

    def ask(self, fixed_distributions: dict[str, Any] | None = None) -> optuna.Trial:
        """Return the next trial.

        Raises:
            NothingLeft: If there is none and there will be none.
            OthersRunning: If there is none now.
        """
        with self.storage.lock(self.spec.name):
            if ENDED in self.user_attrs:
                raise NothingLeft
            self._requeue_orphans()
            trials = self.get_trials(deepcopy=False)
            if not any(trial.state == TrialState.WAITING for trial in trials):
                if self.spec.trials is not None and len(counted(trials)) >= self.spec.trials:
                    running = any(trial.state == TrialState.RUNNING for trial in trials)
                    raise OthersRunning if running else NothingLeft
                if self.spec.sampler["name"] == "grid":
                    tried = [trial.system_attrs.get("fixed_params") for trial in trials]
                    self.enqueue_trial(next(point for point in grid(self.spec.space) if point not in tried))
            trial = super().ask(fixed_distributions)
            self.storage.claim(trial)
        if "seed" in self.spec.sampler:  # with the same seed, all threads would try the same values
            self.sampler = make_sampler(self.spec.sampler, trial.number)
        return trial

    def _requeue_orphans(self) -> None:
        """Queue the trials again whose process is gone. The lock must be held."""
        for trial in self.storage.orphans(self.spec.name):
            self._requeue(trial, killed=True)

    def is_finished(self) -> bool:
        """Return whether all trials of the budget have ended, and not all of them failed."""
        trials = counted(self.get_trials(deepcopy=False))
        ended = sum(trial.state.is_finished() for trial in trials)
        budget = self.spec.trials
        return budget is not None and budget <= ended == len(trials) and not only_failures(trials)

    def give_back(self, number: int, killed: bool) -> None:
        """Queue a trial again that this process has not finished.

        Args:
            number: Of the trial.
            killed: Whether its fit was killed, which may happen to a trial only so often.
        """
        with self.storage.lock(self.spec.name):
            trial = self.get_trials(deepcopy=False)[number]
            if trial.state == TrialState.RUNNING:  # and not requeued by another process meanwhile
                self._requeue(trial, killed)

    def _requeue(self, trial: FrozenTrial, killed: bool) -> None:
        """Fail a running trial, and queue it as a new one that continues it. The lock must be held.

        Optuna's RetryHeartbeatStaleTrialCallback also counts the times that a trial was given back, and is called
        without a lock: two threads can requeue one trial each.
        """
        self.tell(trial.number, state=TrialState.FAIL)
        deaths = trial.user_attrs.get("deaths", 0) + killed
        if deaths < DEATHS:
            kept = {name: value for name, value in trial.user_attrs.items() if name != "process"}
            successor = create_trial(
                state=TrialState.WAITING,
                params=trial.params,
                distributions=trial.distributions,
                intermediate_values=trial.intermediate_values,
                user_attrs={**kept, "replaces": trial.number, "deaths": deaths},
                system_attrs=trial.system_attrs,
            )
            self.add_trial(successor)


def find_study(spec: SweepSpec) -> SweepStudy | None:
    """Return the study of a sweep; None if there is none yet.

    Raises:
        UserError: If its storage can't be used.
    """
    if not has_storage(spec.folder):
        return None
    storage = open_storage(spec.folder)
    with storage_errors():
        return SweepStudy(spec, storage) if spec.name in optuna.get_all_study_names(storage) else None


def start_study(spec: SweepSpec) -> SweepStudy:
    """Return the study of a sweep, created if need be, or anew if all its trials failed and nobody works on it.

    Raises:
        UserError: If its storage can't be used, or it is the study of another sweep file.
    """
    storage = open_storage(spec.folder)
    with storage_errors(), storage.lock(spec.name):
        is_there = spec.name in optuna.get_all_study_names(storage)
        if is_there and only_failures(SweepStudy(spec, storage).get_trials(deepcopy=False)):
            optuna.delete_study(study_name=spec.name, storage=storage)
            is_there = False
        if not is_there:
            directions = [StudyDirection[direction.upper()] for direction in spec.directions]
            made = optuna.create_study(storage=storage, study_name=spec.name, directions=directions)
            made.set_user_attr(FINGERPRINT, spec.fingerprint())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                made.set_metric_names(spec.metrics)
        study = SweepStudy(spec, storage)
        check_fingerprint(study)
        return study


def only_failures(trials: list[FrozenTrial]) -> bool:
    """Return whether there are trials, and all of them failed."""
    return bool(trials) and all(trial.state == TrialState.FAIL for trial in trials)


def check_fingerprint(study: SweepStudy) -> None:
    """Refuse a sweep file whose trials could not be compared with those that are there.

    Raises:
        UserError: Names the key.
    """
    now = study.spec.fingerprint()
    then = study.user_attrs.get(FINGERPRINT, now)
    different = [key for key in now if now[key] != then.get(key)]
    if different and not only_failures(study.get_trials(deepcopy=False)):
        raise UserError(
            f"{study.spec.file}: {different[0]}: differs from what the trials of the sweep '{study.spec.name}' were "
            "run with; change it back, or give the sweep another name."
        )
