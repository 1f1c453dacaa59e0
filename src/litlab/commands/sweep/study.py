"""The Optuna study of a sweep: opened, created, and how many of its trials count."""

import os
import warnings
from pathlib import Path

import optuna
from filelock import FileLock
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from litlab.commands.sweep.space import Entry, list_points
from litlab.commands.sweep.spec import PRUNERS, Spec, build_part
from litlab.errors import UserError, first_line
from litlab.runs.masking import mask_text

VARIABLE = "LITLAB_SWEEP_STORAGE"
HEARTBEAT_SECONDS, GRACE_SECONDS = 10, 30


def allow_experimental() -> warnings.catch_warnings:
    """Return a context in which Optuna does not warn that heartbeats, retries and some samplers may
    change.
    """
    return warnings.catch_warnings(action="ignore", category=ExperimentalWarning)


with allow_experimental():
    # The trial of a killed worker, or of one that was stopped
    queue_again = RetryHeartbeatStaleTrialCallback()


def open_storage(folder: Path) -> RDBStorage:
    """Open the database that ``LITLAB_SWEEP_STORAGE`` names, else ``study.db`` in the sweep's
    folder.

    Errors don't show the address, which may hold a password.
    """
    # SQLite, for one machine: it waits for other processes, and holds no connection open.
    url = os.environ.get(VARIABLE) or f"sqlite:///{folder / 'study.db'}"
    url = url.replace("postgresql://", "postgresql+psycopg://")
    is_file = url.startswith("sqlite")
    options = {"connect_args": {"timeout": 60}, "poolclass": NullPool} if is_file else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Two commands that start at once would both create the tables
        with FileLock(folder / ".lock"):
            return RDBStorage(
                url, options, heartbeat_interval=HEARTBEAT_SECONDS, grace_period=GRACE_SECONDS,
                heartbeat_stale_trial_callback=queue_again,
            )  # fmt: skip
    except (SQLAlchemyError, StorageInternalError, ImportError, RuntimeError, OSError) as error:
        cause = mask_text(first_line(error.__cause__ or error))
        raise UserError(
            f"{VARIABLE}: the study can't be opened ({cause}); give the address of a database, or "
            "unset it"
        ) from error


def open_study(spec: Spec, create: bool = False) -> optuna.Study:
    """Open the study of a sweep; to create it checks that trials can be compared, and queues the
    points of a grid.
    """
    # A study that is only looked at must be there.
    storage = open_storage(spec.folder)
    pruner = build_part(PRUNERS, spec.pruner, "pruner")
    if not create and spec.name not in optuna.get_all_study_names(storage):
        raise UserError(f"{spec.file}: the sweep {spec.name} has not been started; start it first")
    with FileLock(spec.folder / ".lock"):
        study = optuna.create_study(
            study_name=spec.name,
            storage=storage,
            direction=spec.direction,
            pruner=pruner,
            load_if_exists=True,
        )

        # What its trials share is what the first of them had.
        if not study.trials:
            study.set_user_attr("fingerprint", spec.fingerprint)
        before = study.user_attrs["fingerprint"]
        different = [
            key for key, checksum in spec.fingerprint.items() if before.get(key) != checksum
        ]
        if different and create:
            raise UserError(
                f"{spec.file}: {different[0]}: the trials of the sweep {spec.name} were run with "
                "something else; change it back, give the sweep another name, or delete "
                f"{spec.folder}"
            )

        # The points of a grid are trials from the start, so that workers share them out.
        if create and spec.sampler["name"] == "grid":
            for point in list_points(spec.space, Entry.grid)[: spec.trials]:
                study.enqueue_trial(point, skip_if_exists=True)
    return study


def list_counted(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that count: all but those that were queued again as another one."""
    trials = study.get_trials(deepcopy=False)
    again = {number for trial in trials for number in queue_again.retry_history(trial)}
    return [trial for trial in trials if trial.number not in again]
