"""The study of a sweep: who gets the next trial, whose trials are taken up again, when there is nothing left."""

import math
import time
from collections.abc import Callable
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from litlab.errors import UserError
from litlab.sweep.heartbeat import is_dead, me
from litlab.sweep.samplers import make_pruner, make_sampler
from litlab.sweep.space import grid
from litlab.sweep.spec import SweepSpec
from litlab.sweep.storage import Storage, open_storage, storage_errors

SECONDS_BETWEEN_ASKS = 2.0
DEATHS = 5  # of workers with the same trial; then it counts as failed
FINGERPRINT, ENDED = "fingerprint", "ended"  # user attributes of the study
OF_A_WORKER = ("host", "pid", "worker", "replaced_by")  # user attributes that end with the worker


class NothingLeft(Exception):
    """The budget is used up, and every trial has an end."""


class SweepStudy(optuna.Study):
    """An Optuna study with an exact budget.

    A trial is given out under a lock that all workers of all machines take: before it is, the trials of dead workers
    are queued again, and those that count are counted.

    Args:
        spec: The sweep.
        storage: Where it is kept. The study is there.
        look: Called while waiting; may raise.
        until: Time (seconds since the epoch) from which on no trial is given out.
    """

    def __init__(
        self, spec: SweepSpec, storage: Storage, look: Callable[[], None] = lambda: None, until: float = math.inf
    ) -> None:
        super().__init__(spec.name, storage, sampler=make_sampler(spec), pruner=make_pruner(spec))
        self.spec = spec
        self.kept_in = storage
        self._look = look
        self._until = until

    def ask(self, fixed_distributions: dict[str, Any] | None = None) -> optuna.Trial:
        """The next trial.

        Raises:
            NothingLeft: If there is none and there will be none.
        """
        while True:
            self._look()
            if time.time() > self._until:
                raise NothingLeft
            with self.kept_in.lock(self.spec.name):
                if ENDED in self.user_attrs:
                    raise NothingLeft
                self.requeue_orphans()
                trials = self.get_trials(deepcopy=False)
                waiting = any(trial.state == TrialState.WAITING for trial in trials)
                if waiting or self._has_room(trials):
                    if self.spec.sampler["name"] == "grid" and not waiting:
                        self._queue_grid_point(trials)
                    trial = super().ask(fixed_distributions)
                    if "seed" in self.spec.sampler:  # not that of each worker anew: they would try the same
                        self.sampler = make_sampler(self.spec, trial.number)
                    self.kept_in.record_heartbeat(trial._trial_id)
                    for name, value in me().items():
                        trial.set_user_attr(name, value)
                    return trial
                if not any(trial.state == TrialState.RUNNING for trial in trials):
                    raise NothingLeft
            time.sleep(SECONDS_BETWEEN_ASKS)  # others are running, and may die

    def is_finished(self) -> bool:
        """Whether all trials of the budget have an end, and not all of them failed."""
        trials = counted(self.get_trials(deepcopy=False))
        ended = sum(trial.state.is_finished() for trial in trials)
        budget = size(self.spec)
        return budget is not None and ended >= budget and ended == len(trials) and not is_failure(trials)

    def requeue_orphans(self, given_back: int | None = None) -> None:
        """Queues the trials again whose worker is dead. The lock must be held.

        Args:
            given_back: Id of a trial that this process gives back.
        """
        silent = self.kept_in.silent(self._study_id)
        trials = self.get_trials(deepcopy=False)
        successors = {trial.user_attrs["replaces"]: trial for trial in trials if "replaces" in trial.user_attrs}
        for trial in trials:
            if trial.state != TrialState.RUNNING:
                continue
            dead = is_dead(trial, silent=trial._trial_id in silent)
            if not dead and trial._trial_id != given_back:
                continue
            deaths = trial.user_attrs.get("deaths", 0) + dead
            if deaths >= DEATHS:
                reason = f"{DEATHS} workers were killed while they ran it"
                self._storage.set_trial_user_attr(trial._trial_id, "reason", reason)
            else:
                # In this order: killed in between, the next one to come finds the successor.
                number = successors[trial.number].number if trial.number in successors else self._queue(trial, deaths)
                self._storage.set_trial_user_attr(trial._trial_id, "replaced_by", number)
            self._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)

    def _queue(self, trial: FrozenTrial, deaths: int) -> int:
        """Adds a trial that goes on where another ended; returns its number."""
        kept = {name: value for name, value in trial.user_attrs.items() if name not in OF_A_WORKER}
        successor = create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            intermediate_values=trial.intermediate_values,
            user_attrs={**kept, "replaces": trial.number, "deaths": deaths},
            system_attrs=trial.system_attrs,
        )
        identity = self._storage.create_new_trial(self._study_id, template_trial=successor)
        return self._storage.get_trial_number_from_id(identity)

    def _has_room(self, trials: list[FrozenTrial]) -> bool:
        budget = size(self.spec)
        return budget is None or len(counted(trials)) < budget

    def _queue_grid_point(self, trials: list[FrozenTrial]) -> None:
        tried = [trial.system_attrs.get("fixed_params") for trial in trials]
        self.enqueue_trial(next(point for point in grid(self.spec.space) if point not in tried))


def counted(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that use up the budget: all but those that were taken up again as another one."""
    replaced = {trial.user_attrs.get("replaces") for trial in trials}
    return [trial for trial in trials if trial.number not in replaced]


def succeeded(trials: list[FrozenTrial]) -> bool:
    """Whether any trial came to values, or was on its way to when it was pruned."""
    return any(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)


def size(spec: SweepSpec) -> int | None:
    """The number of trials of a sweep: of a grid its points, if there are fewer; None for no limit."""
    if spec.sampler["name"] != "grid":
        return spec.trials
    points = sum(1 for _ in grid(spec.space))
    return points if spec.trials is None else min(points, spec.trials)


def find_study(spec: SweepSpec) -> SweepStudy | None:
    """The study of a sweep; None if it was not begun yet.

    Raises:
        UserError: If its storage can't be used.
    """
    storage = open_storage(spec.folder, create=False)
    with storage_errors():
        if storage is None or spec.name not in {study.study_name for study in storage.get_all_studies()}:
            return None
        return SweepStudy(spec, storage)


def begin_study(spec: SweepSpec) -> SweepStudy:
    """The study of a sweep, made if need be. One in which all trials failed, and that nobody works on, is made anew.

    Raises:
        UserError: If its storage can't be used, or it is the study of another sweep file.
    """
    storage = open_storage(spec.folder)
    assert storage is not None
    with storage_errors(), storage.lock(spec.name):
        names = {study.study_name for study in storage.get_all_studies()}
        if spec.name in names and is_failure((study := SweepStudy(spec, storage)).get_trials(deepcopy=False)):
            storage.delete_study(study._study_id)
            names.remove(spec.name)
        if spec.name not in names:
            directions = [StudyDirection[direction.upper()] for direction in spec.directions]
            identity = storage.create_new_study(directions, spec.name)
            storage.set_study_user_attr(identity, FINGERPRINT, spec.fingerprint())
            storage.set_study_system_attr(identity, "study:metric_names", spec.metrics)  # for optuna-dashboard
        study = SweepStudy(spec, storage)
        check_fingerprint(study)
        return study


def is_failure(trials: list[FrozenTrial]) -> bool:
    """Whether trials failed and nothing else."""
    return bool(trials) and all(trial.state == TrialState.FAIL for trial in trials)


def check_fingerprint(study: SweepStudy) -> None:
    """Refuses a sweep file whose trials could not be compared with those that are there.

    Raises:
        UserError: Names the key.
    """
    now = study.spec.fingerprint()
    then = study.user_attrs.get(FINGERPRINT, now)
    different = [key for key in now if now[key] != then.get(key)]
    if different and not is_failure(study.get_trials(deepcopy=False)):
        raise UserError(
            f"{study.spec.file}: {different[0]}: is not what the trials of the sweep '{study.spec.name}' were made "
            "with: put it back, or give the sweep another name."
        )
