"""A run from its lock to its end: its folder, what it is made from, and how it ends."""

import os
import re
import shutil
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from litlab.checkpointing.internals import early_rank
from litlab.errors import UserError, first_line
from litlab.runs.folder import (
    ROOT,
    RunFolder,
    new_run,
    read_json,
    summarise_traceback,
    write_json,
    write_text,
)
from litlab.runs.loggers import log_settings, save_logger_ids
from litlab.runs.provenance import describe_origin, mask, mask_text, now
from litlab.runs.results import flatten, values
from litlab.util import team

# By name, whoever raises them; Lightning ends the process with SystemExit after Ctrl-C.
INTERRUPTIONS = ("Interrupted", "KeyboardInterrupt", "SIGTERMException")


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
        self._settings: dict[str, Any] = command.settings()
        self.config = yaml.safe_dump(self._settings, sort_keys=False, allow_unicode=True)
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
        trainer, resumed = command.config.trainer, command.line.run
        root = Path(trainer.default_root_dir or ".") / ROOT
        with ExitStack() as stack:
            if trainer.logger is False or trainer.fast_dev_run:
                folder = None
            elif not is_first_process():
                folder = resumed or RunFolder(
                    root / command.config.experiment / "version_of_rank_0"
                )
            else:
                experiment = RunFolder(root / command.config.experiment)
                if command.line.is_auto and "SLURM_JOB_ID" not in os.environ:
                    # Of several processes one starts a run; jobs of SLURM know theirs.
                    stack.enter_context(experiment.lock())
                    refuse_second(experiment)
                folder = resumed or new_run(root, command.config.experiment)
                stack.enter_context(folder.lock())
            run = cls(command, folder)
            with run._recording_end(is_new=resumed is None):
                if resumed is not None:
                    from litlab.runs.changes import is_finished

                    run.is_finished = is_finished(command)
                yield run

    @classmethod
    @contextmanager
    def join(cls, command: Any) -> Iterator["Run"]:
        """Evaluate a checkpoint. The results go into its run, unless they are of other settings.

        Args:
            command: The command line, parsed, with what the model must know of the data.
        """
        from litlab.runs.changes import find_changes, is_of_results, saves_results

        changes = find_changes(command, command.line.run) if command.line.run else {}
        run = cls(command, command.line.run if saves_results(command, changes) else None)
        if any(
            key.startswith("data") and (is_of_results(key) or key.endswith("path"))
            for key in changes
        ):
            run._trained = None  # it is asked for other data
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
            from litlab.runs.changes import check_data

            check_data(self._trained, trainer)
        path = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        if path is None:
            return
        self.folder = RunFolder(Path(path))
        if self._is_fit and trainer.is_global_zero:
            self._started = now()
            self._write_status("running")
            self._write_origin(trainer, self.folder)
            write_text(self.folder.config, self.config)
            log_settings(trainer, self._logged_settings)
            save_logger_ids(trainer.loggers, self.folder)

    def _write_origin(self, trainer: Trainer, folder: RunFolder) -> None:
        origin, diff = describe_origin(trainer)
        if diff:
            write_text(folder.path / origin["uncommitted"]["file"], diff)
        first = read_json(folder.provenance)
        if first:  # what a resumed fit is made from stands beside it
            first["continued"] = [*first.get("continued", []), origin]
        write_json(folder.provenance, first or origin)

    @property
    def _logged_settings(self) -> dict[str, Any]:
        """The settings for loggers, by dotted name, with secrets masked."""
        settings = flatten(mask(self._settings))
        return {re.sub(r"[^\w./ :-]", "_", name): value for name, value in settings.items()}

    # How it ends

    @contextmanager
    def _recording_end(self, is_new: bool) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception):
                self._save_traceback(error)
            self._end(*self._explain(error))
            was_refused = is_new and isinstance(error, UserError) and not self._started
            if was_refused and self.folder is not None and is_first_process():
                shutil.rmtree(self.folder.path)
            raise
        self._end("finished")

    def _explain(self, error: BaseException) -> tuple[str, str, dict[str, Any] | None]:
        """Return the status of a fit that an exception ends, the reason, and where it failed."""
        place = None
        names = [type(cause).__name__ for cause in (error, error.__context__)]
        if any(name in INTERRUPTIONS for name in names):
            status = "interrupted"
            reason = signal.Signals(getattr(error, "signum", signal.SIGINT)).name
        else:
            status = "failed"
            reason = mask_text(f"{type(error).__name__}: {first_line(error)}")
            first = self.folder and self.folder.find_failed_rank(self._clock)
            if first and is_first_process():  # of which this process only sees that it is gone
                error.add_note(f"traceback in {first} of the process that failed first")
                reason = mask_text(summarise_traceback(first))
            if self._trainer is not None:
                place = locate_failure(self._trainer, error)
        in_test = self._trainer is not None and self._trainer.state.fn == "test"
        return status, f"in its test: {reason}" if in_test else reason, place

    def _end(self, status: str, reason: str | None = None, place: Any = None) -> None:
        """Write how the fit ended, and give TensorBoard's HPARAMS tab the results that `runs`
        shows.
        """
        if not self._started or self.folder is None or self._trainer is None:
            return  # it did not begin, or is no fit, or another process writes
        self._write_status(status, reason, place)
        results = values(read_json(self.folder.metrics))
        for board in self._trainer.loggers:
            if isinstance(board, TensorBoardLogger):
                tagged = {f"hp/{name}": value for name, value in results.items()}
                board.log_hyperparams(self._logged_settings, tagged, step=self._trainer.global_step)
                board.finalize("success")

    def _write_status(self, status: str, reason: str | None = None, place: Any = None) -> None:
        assert self.folder is not None
        write_json(self.folder.status, {
            "status": status,
            "reason": reason,
            "place": place,
            "started": self._started,
            "ended": None if status == "running" else now(),
            "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        })  # fmt: skip

    def _save_traceback(self, error: Exception) -> None:
        """Keep the traceback of this process; those of ranks above zero have files of their own."""
        if self.folder is None:
            save_traceback(error, ROOT / "traceback.txt")
        elif is_first_process():
            save_traceback(error, self.folder.traceback)
        elif self._trainer is not None:  # earlier, all processes fail alike
            rank = self._trainer.global_rank
            save_traceback(error, self.folder.path / f"traceback_rank_{rank}.txt")


def refuse_second(experiment: RunFolder) -> None:
    """Refuse ``--resume auto`` while another process trains a run of the experiment, or starts
    one.
    """
    for folder in experiment.path.glob("version_*"):
        if RunFolder(folder).is_locked():
            raise UserError(
                f"{RunFolder(folder).name}: another process trains it; wait until it "
                "ends, or stop it"
            )


def is_first_process() -> bool:
    """Return whether this process of a run writes files, and was not launched as a further rank."""
    return not early_rank() and os.environ.get("NODE_RANK", "0") == "0"


@contextmanager
def saving_traceback(file: Path = ROOT / "traceback.txt") -> Iterator[None]:
    """Keep the traceback of what ends the block, and note on the exception where it is."""
    try:
        yield
    except Exception as error:
        save_traceback(error, file)
        raise


def save_traceback(error: Exception, file: Path) -> None:
    with suppress(UserError):  # a full disk: the exception itself is what must be seen
        write_text(file, mask_text("".join(traceback.format_exception(error))))
        error.add_note(f"traceback in {file}")


def locate_failure(trainer: Trainer, error: BaseException) -> dict[str, Any]:
    """Return where a fit failed: epoch, step, batch, and the line, of the team's package if any
    is.
    """
    frames = traceback.extract_tb(error.__traceback__)
    folder = team.package_folder()
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    frame = (own or frames)[-1]
    return {
        "epoch": trainer.current_epoch,
        "step": trainer.global_step,
        "batch": trainer.fit_loop.batch_idx,
        "line": f"{os.path.relpath(frame.filename)}:{frame.lineno}",
    }
