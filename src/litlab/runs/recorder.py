"""Record what a run is made from, how it ends and its results."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError
from litlab.runs.folder import STATUS_LOCK, RunFolder, read_or_set_aside, write_json, write_text
from litlab.runs.masking import mask_text
from litlab.runs.provenance import now, provenance
from litlab.util.checkpoint_epoch import epoch_of
from litlab.util.device import GIB, peak_host_gib

KEY = "run_record"  # in the checkpoint
INTERRUPTIONS = ("Interrupted", "KeyboardInterrupt", "SIGTERMException")  # by name: whoever raises them


class RunRecord(Callback):
    """Keep ``status.json``, ``metrics.json`` and ``provenance.json`` of a run, in its folder.

    Provenance and the status ``running`` are written when a fit begins, metrics when an epoch does (a running or killed
    run shows those of its last complete epoch) and, with the final status, when it ends in whatever way. ``validate``
    and ``test`` put their metrics into those of the run they belong to. A resumed fit adds to what is there: its
    command and commit, its seconds; if it is refused before it has trained anything, everything is as it was. A run
    without a logger keeps nothing. Nothing is done per step.

    Checkpoints hold the metrics of the last validation, for a run that is killed before they are in ``metrics.json``.

    Args:
        test_follows: Called at the end of a fit: whether its test follows. The run is not finished before that.
    """

    def __init__(self, test_follows: Callable[[], bool] | None = None) -> None:
        self.seconds_before = 0.0  # taken by earlier fits of the run
        self._test_follows = test_follows
        self._folder: RunFolder | None = None  # on rank zero, of a run that keeps one
        self._fit = ""  # "" before, "running" in, "ended" after the fit of this process
        self._began = 0.0  # clock when the fit did
        self._before: dict[str, Any] = {}  # metrics of the run before this fit
        self._status: dict[str, Any] = {}
        self._val: dict[str, float] = {}  # of the last validation
        self._former: dict[Path, bytes | None] = {}  # files of a run that is resumed, as they were; None: not there
        self._first_step: int | None = None  # where this fit began to train

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Note the folder; where a fit begins, write what it is made from and that it runs."""
        log_dir = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        if log_dir is None or not trainer.is_global_zero:
            return
        self._folder = RunFolder(Path(log_dir))
        if stage != "fit":
            return
        run = self._folder
        if run.status.is_file():
            files = (run.config, run.status, run.metrics, run.provenance)
            self._former = {file: file.read_bytes() if file.is_file() else None for file in files}
        self.seconds_before = read_or_set_aside(self._folder.status).get("seconds") or 0.0
        self._before = read_or_set_aside(self._folder.metrics)
        for name in ("test", "test_checkpoint"):  # of weights that this fit replaces
            self._before.pop(name, None)
        self._val = self._before.get("val", {})
        self._began = time.monotonic()
        self._write_provenance(trainer, self._folder)
        self._status = {
            "status": "running",
            "reason": None,
            "test": None,  # after the fit: pending, done, or none where there is nothing to test
            "started": now(),
            "ended": None,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
            "seconds": self.seconds_before,
        }
        write_json(self._folder.status, self._status)
        self._fit = "running"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the step."""
        self._first_step = trainer.global_step

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the results of the epochs before: by now every callback is done with them."""
        if self._folder is not None and trainer.current_epoch > 0:
            self._write_fit(trainer, self._folder, "running", None)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the metrics; those of ``validate`` go into the run's."""
        if trainer.sanity_checking:
            return
        metrics = _floats(trainer)
        if trainer.state.fn == "fit":
            self._val = {name: value for name, value in metrics.items() if name.startswith("val")}
        else:
            self._add_results(trainer, "val", metrics)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the metrics into the run's."""
        self._add_results(trainer, "test", _floats(trainer))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write how a fit ended, if it was not interrupted, and that the test after it is done."""
        if self._folder is None:
            return
        if stage == "fit":
            if self._test_follows is not None:
                self._status["test"] = "pending" if self._test_follows() else "none"
            self._write_fit(trainer, self._folder, "running" if self._status["test"] == "pending" else "finished", None)
            self._fit = "ended"
        elif stage == "test" and self._fit == "ended" and self._status["test"] == "pending":
            self._status["test"] = "done"
            self._write_status(self._folder, "finished", None)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Put the metrics of the last validation into the checkpoint."""
        checkpoint[KEY] = {"val": self._val}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Restore them, for a fit that is resumed."""
        if trainer.state.fn == "fit" and KEY in checkpoint:
            self._val = checkpoint[KEY]["val"]

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write how a fit was interrupted or failed, or that the test after it failed."""
        if self._folder is None or not self._fit:  # nothing began, or it is a test of its own: the run is as it was
            return
        status = "interrupted" if type(exception).__name__ in INTERRUPTIONS else "failed"
        reason = _reason(exception)
        nothing_trained = self._first_step is None or trainer.global_step == self._first_step
        try:
            if self._fit == "running" and self._former and nothing_trained and isinstance(exception, UserError):
                self._restore_files()
            elif self._fit == "running":
                self._write_fit(trainer, self._folder, status, reason)
            else:
                stage = "fit" if trainer.state.fn is None else trainer.state.fn.value
                where = "after the fit" if stage == "fit" else f"in {stage}, after the fit"
                self._write_status(self._folder, status, f"{where}: {reason}")
        except Exception as error:  # the disk may be full, and the run's own exception is what must be seen
            print(f"warning: the run's end is not recorded: {_reason(error)}", file=sys.stderr)

    def _restore_files(self) -> None:
        for file, content in self._former.items():
            if content is None:
                file.unlink(missing_ok=True)
            else:
                write_text(file, content.decode())

    def _write_fit(self, trainer: Trainer, folder: RunFolder, status: str, reason: str | None) -> None:
        metrics = {
            **self._before,
            "val": self._val,
            "best": self._best(trainer) or self._before.get("best"),
            "epochs": trainer.current_epoch,
            "steps": trainer.global_step,
            "seconds": self._write_status(folder, status, reason),
            "peak_memory_gib": max(peak_gib(trainer), self._before.get("peak_memory_gib") or 0.0),
            "generated_data": _generated(trainer),
        }
        write_json(folder.metrics, metrics)

    def _write_status(self, folder: RunFolder, status: str, reason: str | None) -> float:
        """Write the status; return the seconds that the run took so far, all its fits together."""
        seconds = round(self._status["seconds"] + time.monotonic() - self._began, 3)
        ended = None if status == "running" else now()
        now_known = {"status": status, "reason": reason, "ended": ended, "seconds": seconds}
        with STATUS_LOCK:
            write_json(folder.status, {**self._status, **now_known})
        return seconds

    def _write_provenance(self, trainer: Trainer, folder: RunFolder) -> None:
        written = read_or_set_aside(folder.provenance)
        sessions = [written, *written.get("continued", [])] if written else []
        diff_name = f"uncommitted_{len(sessions)}.diff" if sessions else "uncommitted.diff"
        described, diff = provenance(trainer, diff_name)
        if diff:
            self._former |= {folder.path / diff_name: None} if self._former else {}
            write_text(folder.path / diff_name, diff)
        if written:
            keep = ("started", "command", "commit", "dirty", "uncommitted", "versions", "hardware")
            session = {name: described[name] for name in keep if name in described}
            written["continued"] = [*sessions[1:], session]
        write_json(folder.provenance, written or described)

    def _add_results(self, trainer: Trainer, kind: str, metrics: dict[str, float]) -> None:
        if self._folder is None:
            return
        content = read_or_set_aside(self._folder.metrics)
        if content.setdefault("generated_data", _generated(trainer)) != _generated(trainer):
            rank_zero_info("The run used other data, as one of the two is generated: these results are not kept.")
            return
        content[kind] = metrics
        content[f"{kind}_checkpoint"] = Path(trainer.ckpt_path).name if trainer.ckpt_path else None
        write_json(self._folder.metrics, content)

    def _best(self, trainer: Trainer) -> dict[str, Any] | None:
        """Return the best value of the checkpoint callback; None without a monitor, or before its first checkpoint."""
        checkpoint: Any = trainer.checkpoint_callback
        path, score = getattr(checkpoint, "best_model_path", ""), getattr(checkpoint, "best_model_score", None)
        if not path or score is None or checkpoint.monitor is None:
            return None
        return {
            "monitor": checkpoint.monitor,
            "mode": checkpoint.mode,
            "value": float(score),
            "epoch": epoch_of(path),
            "checkpoint": Path(path).name,
        }


def peak_gib(trainer: Trainer) -> float:
    """Return the most memory the run took, in GiB: as a callback that resets the peaks measured it, else as it is."""
    callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    measured = [peak for callback in callbacks if (peak := getattr(callback, "peak_gib", None)) is not None]
    if measured:
        return max(measured)
    device = trainer.strategy.root_device
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / GIB
    if device.type == "mps":
        return torch.mps.driver_allocated_memory() / GIB
    return peak_host_gib()


def _floats(trainer: Trainer) -> dict[str, float]:
    """Return the metrics; called on every rank, as what is not reduced yet is reduced together."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _generated(trainer: Trainer) -> bool:
    return bool(getattr(getattr(trainer, "datamodule", None), "generated", False))


def _reason(error: BaseException) -> str:
    if signum := getattr(error, "signum", None):
        return signal.Signals(signum).name
    text = mask_text(" ".join(str(error).split()))
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= 300 else line[:297] + "..."
