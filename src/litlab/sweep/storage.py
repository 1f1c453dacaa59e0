"""Where the trials of a sweep are kept, and the lock that workers take to ask for one."""

import contextlib
import fcntl
import os
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.pool import NullPool

from litlab.errors import UserError, first_line
from litlab.runs.masking import mask_text

VARIABLE = "LITLAB_SWEEP_STORAGE"
HEARTBEAT_SECONDS = 30
GRACE_SECONDS = 90
LOCK_SECONDS = 600  # nobody holds the lock for more than a few
DATABASES = ("sqlite", "postgresql", "mysql")


class Storage(RDBStorage):
    """An Optuna storage in SQLite (the default, in the sweep's folder), PostgreSQL or MySQL.

    Optuna would fail the trials of silent workers by itself, without the lock and before they are queued again: killed
    in between, it would lose one. Here it finds none; `silent` tells them.
    """

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        return []

    def silent(self, study_id: int) -> list[int]:
        """Ids of running trials whose worker has not been heard of for 90 seconds."""
        return super()._get_stale_trial_ids(study_id)

    def lock(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Holds what only one worker of all machines may hold; it ends with the process.

        Args:
            name: Of the sweep.
        """
        return _lock(self.engine, name)


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Makes one line of what goes wrong with a storage; the address, which may hold a password, is not in it."""
    try:
        yield
    except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
        cause = getattr(cause, "orig", None) or cause
        raise UserError(f"{_what()} can't be used: {mask_text(first_line(cause))}.") from error


def open_storage(folder: Path, create: bool = True) -> Storage | None:
    """Opens the storage of a sweep.

    Args:
        folder: The sweep's folder, where SQLite's file is; ``LITLAB_SWEEP_STORAGE`` names another storage.
        create: Whether to make the file if it is not there.

    Returns:
        The storage; None where its file is not there and not to be made.

    Raises:
        UserError: If it can't be reached.
    """
    url = os.environ.get(VARIABLE)
    if not url:
        file = folder / "study.db"
        if not file.is_file():
            if not create:
                return None
            folder.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{file}"
    scheme, separator, rest = url.partition("://")
    if scheme in ("postgres", "postgresql"):
        url = f"postgresql+psycopg{separator}{rest}"
    options: dict[str, Any] = {"pool_pre_ping": True}
    if scheme == "sqlite":  # files are cheap to open; a pool would keep them open until it is garbage collected
        options = {"connect_args": {"timeout": 60}, "poolclass": NullPool}
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # trials are told by the table
    with warnings.catch_warnings(), storage_errors():
        warnings.simplefilter("ignore", ExperimentalWarning)  # the heartbeat
        try:
            engine = sqlalchemy.create_engine(url, **options | {"poolclass": NullPool})
            if engine.name not in DATABASES:
                raise UserError(f"{VARIABLE}: {engine.name} is not supported: take {', '.join(DATABASES)}.")
            with _lock(engine, "tables"):  # two commands that begin at once would both make them
                storage = Storage(
                    url, engine_kwargs=options, heartbeat_interval=HEARTBEAT_SECONDS, grace_period=GRACE_SECONDS
                )
        except (ImportError, sqlalchemy.exc.NoSuchModuleError) as error:
            raise UserError(
                f"{VARIABLE}: the driver for {scheme} is not installed: pip install 'psycopg[binary]', or your own."
            ) from error
        except sqlalchemy.exc.ArgumentError as error:
            raise UserError(f"{VARIABLE} is not an address of a database, such as postgresql://host/name.") from error
    return storage


@contextlib.contextmanager
def _lock(engine: sqlalchemy.Engine, name: str) -> Iterator[None]:
    if engine.name == "sqlite":
        with open(f"{engine.url.database}.lock", "a") as file:  # it may be a file of somebody else
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


def _what() -> str:
    return f"the storage that {VARIABLE} names" if os.environ.get(VARIABLE) else "the sweep's study.db"
