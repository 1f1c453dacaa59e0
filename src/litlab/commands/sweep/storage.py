"""Where the trials of a sweep are stored, the lock under which they are handed out, and whose processes are gone."""

import contextlib
import fcntl
import os
import socket
import threading
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil
import sqlalchemy
import sqlalchemy.exc
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.pool import NullPool

from litlab.errors import UserError, first_line
from litlab.runs.masking import mask_text

VARIABLE = "LITLAB_SWEEP_STORAGE"
HEARTBEAT_SECONDS = 30
GRACE_SECONDS = 90
LOCK_SECONDS = 600  # nobody holds the lock for more than a few
DATABASES = ("sqlite", "postgresql", "mysql")


class Storage(RDBStorage):
    """An Optuna storage in SQLite, PostgreSQL or MySQL, with a lock; it notices dead processes here at once.

    What is private in Optuna and needed here is used in this class only: ids of trials, and the list of stale trials.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, heartbeat_interval=HEARTBEAT_SECONDS, grace_period=GRACE_SECONDS, **options)
        self._thread_lock = threading.Lock()

    @contextlib.contextmanager
    def lock(self, study: str) -> Iterator[None]:
        """Hold the lock of a study, which one thread of all machines has at a time; it ends with the process."""
        with self._thread_lock, _lock(self.engine, study):  # one connection at a time waits for the database's lock
            yield

    def claim(self, trial: optuna.Trial) -> None:
        """Note which process runs a trial. The lock must be held since the trial was asked for."""
        self.record_heartbeat(trial._trial_id)
        trial.set_user_attr("process", this_process())

    def report(self, trial: optuna.Trial, value: float, step: int) -> None:
        """Keep an intermediate value, which `Trial.report` does not in a study of several metrics."""
        if len(trial.study.directions) == 1:
            trial.report(value, step)
        else:
            self.set_trial_intermediate_value(trial._trial_id, step, value)

    def orphans(self, study: str) -> list[FrozenTrial]:
        """Return the running trials of a study whose process is gone.

        The lock must be held: then each running trial was claimed, unless its process was killed before it could.
        """
        study_id = self.get_study_id_from_name(study)
        silent = super()._get_stale_trial_ids(study_id)
        running = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,))
        return [trial for trial in running if is_dead(trial, silent=trial._trial_id in silent)]

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        """Return none: Optuna would fail and requeue them without the lock, in two threads at once each twice."""
        return []


def this_process() -> dict[str, Any]:
    """Return what a trial keeps of the process that runs it."""
    return {"machine": _machine(), "pid": os.getpid(), "born": psutil.Process().create_time()}


def is_dead(trial: FrozenTrial, silent: bool) -> bool:
    """Return whether the process of a running trial is gone, or silent where it can't be seen from here."""
    process = trial.user_attrs.get("process")
    if process is None or process["machine"] != _machine():
        return silent or process is None
    try:
        found = psutil.Process(process["pid"])
        return found.status() == psutil.STATUS_ZOMBIE or abs(found.create_time() - process["born"]) > 2
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:  # it is there, but another user's
        return False


def _machine() -> str:
    """Where process ids mean the same: one boot of one machine or container."""
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")  # of Linux
    parts = [socket.gethostname(), boot.read_text().strip() if boot.exists() else ""]
    return " ".join([*parts, os.readlink(namespace) if namespace.exists() else ""])


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Turn what goes wrong with a storage into one line, without the address, which may hold a password."""
    try:
        yield
    except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
        cause = getattr(cause, "orig", None) or cause
        what = VARIABLE if os.environ.get(VARIABLE) else "the sweep's study.db"
        raise UserError(f"{what}: the storage can't be used: {mask_text(first_line(cause))}.") from error


def has_storage(folder: Path) -> bool:
    """Return whether there is a storage that may hold the study of the sweep in a folder."""
    return bool(os.environ.get(VARIABLE)) or (folder / "study.db").is_file()


def open_storage(folder: Path) -> Storage:
    """Open the storage of a sweep, created if need be: `LITLAB_SWEEP_STORAGE`, else SQLite in the sweep's folder.

    Raises:
        UserError: If it can't be used.
    """
    url = os.environ.get(VARIABLE)
    if not url:
        folder.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{folder / 'study.db'}"
    scheme, separator, rest = url.partition("://")
    if scheme in ("postgres", "postgresql"):
        url = f"postgresql+psycopg{separator}{rest}"
    options: dict[str, Any] = {"pool_pre_ping": True, "max_overflow": -1}  # a connection for each thread
    if scheme == "sqlite":  # files are cheap to open; a pool would keep them open until it is garbage collected
        options = {"connect_args": {"timeout": 60}, "poolclass": NullPool}
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # the table says how trials end
    with warnings.catch_warnings(), storage_errors():
        warnings.simplefilter("ignore", ExperimentalWarning)  # the heartbeat
        try:
            engine = sqlalchemy.create_engine(url, poolclass=NullPool)
            if engine.name not in DATABASES:
                raise UserError(f"{VARIABLE}: {engine.name} is not supported; use {', '.join(DATABASES)}.")
            with _lock(engine, "tables"):  # two commands that start at once would both create them
                return Storage(url, engine_kwargs=options)
        except (ImportError, sqlalchemy.exc.NoSuchModuleError) as error:
            raise UserError(
                f"{VARIABLE}: the driver for {scheme} is not installed; run pip install 'psycopg[binary]', or yours."
            ) from error
        except sqlalchemy.exc.ArgumentError as error:
            raise UserError(f"{VARIABLE}: not the address of a database, such as postgresql://host/name.") from error


@contextlib.contextmanager
def _lock(engine: sqlalchemy.Engine, name: str) -> Iterator[None]:
    if engine.name == "sqlite":
        with open(f"{engine.url.database}.lock", "a") as file:  # which may be another user's
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        return
    number = zlib.crc32(name.encode())
    take, give = {
        "postgresql": (f"SELECT pg_advisory_lock({number})", f"SELECT pg_advisory_unlock({number})"),
        "mysql": (f"SELECT GET_LOCK('sweep{number}', {LOCK_SECONDS})", f"SELECT RELEASE_LOCK('sweep{number}')"),
    }[engine.name]
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(take))
        try:
            yield
        finally:
            connection.execute(sqlalchemy.text(give))
