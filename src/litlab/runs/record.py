"""The metrics of a run, written after each validation and epoch; nothing is done per step."""

import math
import time
from pathlib import Path
from typing import Any

from filelock import FileLock
from lightning.pytorch import Callback, Trainer

from litlab.runs.folder import RunFolder, read_record, write_json
from litlab.runs.run import Run
from litlab.util.device import peak_gib


class RunRecord(Callback):
    """Keep ``metrics.json`` in the folder of a run, and its config in its checkpoints.

    The metrics of the validation are those of the best checkpoint, which is the one that is tested:
    all numbers of a run belong to one epoch. ``validate`` and ``test`` put their metrics there,
    too.

    Args:
        run: The run, which begins once the data is set up.
    """

    def __init__(self, run: Run) -> None:
        self.seconds_before = 0.0  # taken by earlier fits of the run
        self._run = run
        self._clock = 0.0
        self._newest: dict[str, float] = {}  # of the newest validation
        self._best: dict[str, Any] = {}  # val and val_checkpoint, of the best one
        self._saved: Any = None  # what identifies the best one

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        # Lightning would log the model's and the data's settings once more, under bare names, and
        # refuses to where the two have different values of one name.
        trainer.enable_autolog_hparams = False
        if self._clock:  # it is the test that follows a fit
            return
        self._run.begin(trainer)  # only now: which data it is was not known before
        if stage == "fit":
            self._clock = time.monotonic()
            folder = self._run.folder
            if folder is not None and trainer.is_global_zero:
                self.seconds_before = read_record(folder.metrics).get("seconds") or 0.0
                # The test was of weights that this fit replaces.
                update_metrics(folder, {"test": None, "test_checkpoint": None})

    # While it trains

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._find_best(trainer)  # the one that a resumed run has

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._write(trainer)  # only now the checkpoint of the epoch before is written

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        # JSON has no NaN
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        folder = self._run.folder
        if trainer.state.fn == "fit":
            if not trainer.sanity_checking:
                # Checkpoints are written after this hook: only that of the validation before is
                # there, with the metrics of that
                self._find_best(trainer)
                self._newest = {name: metrics[name] for name in metrics if name.startswith("val")}
                self._write(trainer)
        elif folder is not None and trainer.is_global_zero:
            stage = "test" if trainer.testing else "val"
            checkpoint = Path(trainer.ckpt_path).name if trainer.ckpt_path else None
            update_metrics(folder, {stage: metrics, f"{stage}_checkpoint": checkpoint})

    on_test_end = on_validation_end

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: Any) -> None:
        checkpoint["config"] = self._run.config
        checkpoint["best_results"] = self._find_best(trainer)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: Any) -> None:
        self._best = checkpoint.get("best_results", {})

    # How it ends

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        self._write(trainer)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        folder = self._run.folder
        if trainer.state.fn != "fit" or folder is None or not self._clock:
            return
        peak = peak_gib(trainer)
        found = self._find_best(trainer)
        if not trainer.is_global_zero:
            return
        # A resumed run adds its time to that of the fits before, and keeps the highest peak
        before = read_record(folder.metrics)
        seconds = self.seconds_before + time.monotonic() - self._clock
        update_metrics(folder, {
            **found,
            "best": describe_best(trainer) or before.get("best"),
            "epochs": trainer.current_epoch,
            "steps": trainer.global_step,
            "seconds": round(seconds, 3),
            "peak_memory_gib": round(max(peak, before.get("peak_memory_gib", 0.0)), 3),
        })  # fmt: skip

    def _find_best(self, trainer: Trainer) -> dict[str, Any]:
        """Return the metrics of the best checkpoint; the newest ones where none is kept."""
        checkpoint: Any = trainer.checkpoint_callback
        path = getattr(checkpoint, "best_model_path", "")
        score = getattr(checkpoint, "best_model_score", None)
        # A new best one may replace a file of the same name: its score tells them apart, or without
        # a monitor its step
        saved = (path, getattr(checkpoint, "step_saved", None) if score is None else float(score))
        if self._newest and (saved != self._saved or not path):
            name = Path(path).name if path else None
            self._best = {"val": self._newest, "val_checkpoint": name}
        self._saved = saved
        return self._best


def update_metrics(run: RunFolder, changes: dict[str, Any]) -> None:
    """Change some entries of ``metrics.json``; another process may test the run while it trains."""
    with FileLock(run.path / ".metrics.lock"):
        write_json(run.metrics, read_record(run.metrics) | changes)


def describe_best(trainer: Trainer) -> dict[str, Any] | None:
    """Return the best value of the checkpoint callback; None without a monitor or a checkpoint."""
    checkpoint: Any = trainer.checkpoint_callback
    if getattr(checkpoint, "best_model_score", None) is None:
        return None
    return {
        "monitor": checkpoint.monitor,
        "mode": checkpoint.mode,
        "value": float(checkpoint.best_model_score),
        "checkpoint": Path(checkpoint.best_model_path).name,
    }
