"""A run from its lock to its end: its folder, what it is made from, and how it ends."""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from litlab.callbacks.reporting import run_folder
from litlab.errors import UserError, first_line
from litlab.runs.changes import (
    check_data,
    find_changes,
    is_finished,
    is_of_data,
    saves_results,
)
from litlab.runs.failures import locate_failure, save_traceback
from litlab.runs.folder import (
    ROOT,
    RunFolder,
    create_run,
    read_record,
    summarise_traceback,
    write_json,
    write_text,
)
from litlab.runs.loggers import log_results, log_settings, save_logger_ids
from litlab.runs.masking import mask, mask_text
from litlab.runs.provenance import tell_time, write_origin
from litlab.runs.results import flatten, pick_metrics
from litlab.runs.signals import Interrupted
from litlab.util.ranks import is_first_process
from litlab.util.yaml import dump_config


class Run:
    """What a command does in the folder of a run: a fit from its lock to its end, or an evaluation.

    `start` and `join` make one for a ``with`` block. Whatever ends the block of a fit is recorded:
    it is finished, interrupted by a signal, or failed in some epoch, step, batch and line. The
    traceback of each process is kept.

    Attributes:
        folder: Where the run keeps what it writes; None: it keeps nothing. Processes other than the
            first learn of a new one when the Trainer starts.
        config: The resolved config as YAML, which checkpoints hold, too.
        is_finished: Whether a run that was to be resumed has nothing left to do.
    """

    def __init__(self, command: Any, folder: RunFolder | None) -> None:
        self.folder = folder
        self.is_finished = False
        self._settings: dict[str, Any] = command.get_settings()
        self.config = dump_config(self._settings)
        self._is_fit = command.verb == "fit"
        # Whose data this must be; None: any data will do.
        self._trained: RunFolder | None = None if command.config.data_changed else command.line.run
        self._trainer: Trainer | None = None  # once the data is there
        self._started = ""  # when the fit began, in the process that writes
        self._clock = time.time()

    @classmethod
    @contextmanager
    def start(cls, command: Any) -> Iterator["Run"]:
        """Start a new run, or go on with the one that is resumed. The first process holds its lock.

        Args:
            command: The command line of ``fit``, parsed, with what the model must know of the data.

        Raises:
            UserError: If another process trains there, or the experiment's name is no name of a
                folder.
        """
        resumed = command.line.run
        with ExitStack() as locks:  # the outermost block: how the run ended is written before
            run = cls(command, choose_folder(command, locks))
            with run._recording_end(is_new=resumed is None):
                if resumed is not None:
                    # Only now that the lock is held: another process might just have finished it
                    run.is_finished = is_finished(command)
                yield run

    @classmethod
    @contextmanager
    def join(cls, command: Any) -> Iterator["Run"]:
        """Evaluate a checkpoint. The results go into its run, unless they are of other settings.

        Args:
            command: The command line, parsed, with what the model must know of the data.
        """
        # No lock: a run may be evaluated while it trains
        evaluated = command.line.run
        changes = find_changes(command, evaluated) if evaluated else {}
        run = cls(command, evaluated if saves_results(command, changes) else None)
        # Other data was asked for; else the run's path must hold what it was trained on
        if any(is_of_data(key) for key in changes):
            run._trained = None
        with run._recording_end(is_new=False):
            yield run

    # How it begins

    def begin(self, trainer: Trainer) -> None:
        """Record what a fit is made from, now that its data is there. Every process calls this.

        Raises:
            UserError: If the run was trained on other data.
        """
        self._trainer = trainer
        if self._trained is not None:
            check_data(self._trained, trainer)

        # The first process has made the folder; Lightning tells the others its name
        path = run_folder(trainer)
        if path is None:  # it keeps nothing
            return
        self.folder = RunFolder(path)

        # From here on the run shows up in `runs`
        if self._is_fit and trainer.is_global_zero:
            self._started = tell_time()
            self._write_status("running")
            write_origin(trainer, self.folder)
            write_text(self.folder.config, self.config)
            log_settings(trainer, self._logged_settings)
            save_logger_ids(trainer.loggers, self.folder)

    @property
    def _logged_settings(self) -> dict[str, Any]:
        """The settings for loggers, by dotted name, with secrets masked."""
        settings = flatten(mask(self._settings))
        # MLflow refuses names with other characters
        return {re.sub(r"[^\w./ :-]", "_", name): value for name, value in settings.items()}

    # How it ends

    @contextmanager
    def _recording_end(self, is_new: bool) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # KeyboardInterrupt and SystemExit are no Exceptions: where they came tells nothing
            if isinstance(error, Exception):
                self._save_traceback(error)
            self._end(*self._explain(error))
            # A mistake of the user's before anything began leaves no empty run behind
            was_refused = is_new and isinstance(error, UserError) and not self._started
            if was_refused and self.folder is not None and is_first_process():
                shutil.rmtree(self.folder.path)
            raise
        self._end("finished")

    def _explain(self, error: BaseException) -> tuple[str, str, dict[str, Any] | None]:
        """Return the status of a fit that an exception ends, the reason, and where it failed."""
        # The test after a fit: its training is complete, which is good to know
        in_test = self._trainer is not None and self._trainer.state.fn == "test"
        where = "in its test: " if in_test else ""
        # Of Ctrl-C before `StopSignals` is there, Lightning makes a SystemExit
        causes = (error, error.__context__)
        if any(isinstance(cause, Interrupted | KeyboardInterrupt) for cause in causes):
            # `Interrupted` knows its signal, all others are Ctrl-C
            name = signal.Signals(getattr(error, "signum", signal.SIGINT)).name
            return "interrupted", where + name, None

        reason = mask_text(f"{type(error).__name__}: {first_line(error)}")
        # Where another process failed first, this one only sees that it is gone
        first = self.folder and self.folder.find_failed_rank(self._clock)
        if first and is_first_process():
            error.add_note(f"traceback in {first} of the process that failed first")
            reason = mask_text(summarise_traceback(first))
        location = locate_failure(self._trainer, error) if self._trainer is not None else None
        return "failed", where + reason, location

    def _end(self, status: str, reason: str | None = None, location: Any = None) -> None:
        """Write how the fit ended, with its results for TensorBoard's HPARAMS tab."""
        # It did not begin, is no fit, or another process writes
        if not self._started or self.folder is None or self._trainer is None:
            return
        self._write_status(status, reason, location)
        log_results(
            self._trainer, self._logged_settings, pick_metrics(read_record(self.folder.metrics))
        )

    def _write_status(self, status: str, reason: str | None = None, location: Any = None) -> None:
        assert self.folder is not None
        write_json(self.folder.status, {
            "status": status,
            "reason": reason,
            "place": location,
            "started": self._started,
            "ended": None if status == "running" else tell_time(),
            "slurm_job_id": os.environ.get("SLURM_JOB_ID"),  # a requeued job finds its run by it
        })  # fmt: skip

    def _save_traceback(self, error: Exception) -> None:
        """Keep the traceback of this process; those of ranks above zero have files of their own."""
        if self.folder is None:
            save_traceback(error)
        elif is_first_process():
            save_traceback(error, self.folder.traceback)
        elif self._trainer is not None:  # earlier, all processes fail alike
            rank = self._trainer.global_rank
            save_traceback(error, self.folder.path / f"traceback_rank_{rank}.txt")


def choose_folder(command: Any, locks: ExitStack) -> RunFolder | None:
    """Return the folder of the run that is resumed or begins, its lock held; None: nothing is kept.

    Args:
        command: As of `Run.start`.
        locks: Holds what the first process locks.
    """
    # Where a run is only tried, or was told to keep nothing
    trainer, resumed = command.config.trainer, command.line.run
    if trainer.logger is False or trainer.fast_dev_run:
        return None
    root = Path(trainer.default_root_dir or ".") / ROOT
    experiment = RunFolder(root / command.config.experiment)
    if not is_first_process():
        # The first process chooses. The others learn of it in `Run.begin`, and any name will do
        # until then
        return resumed or RunFolder(experiment.path / "version_of_rank_0")

    # Of several processes that say --resume auto, one starts a run; jobs of SLURM know theirs
    if command.line.is_auto and "SLURM_JOB_ID" not in os.environ:
        locks.enter_context(experiment.lock())
        for folder in map(RunFolder, experiment.path.glob("version_*")):
            if folder.is_locked():
                raise UserError(
                    f"{folder.name}: another process trains it; wait until it ends, or stop it"
                )
    folder = resumed or create_run(root, command.config.experiment)
    locks.enter_context(folder.lock())
    return folder
