"""Record how a run ends, its results, its config and what it was made from; nothing is done per step."""

import math
import os
import re
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger

from litlab.errors import first_line
from litlab.runs import results
from litlab.runs.folder import RunFolder, read_json, write_json, write_text
from litlab.runs.provenance import describe_origin, mask, mask_text, now
from litlab.runs.results import flatten
from litlab.util import team
from litlab.util.device import peak_gib

IDS = {"WandbLogger": "id", "MLFlowLogger": "run_id", "CometLogger": "experiment_key"}  # the argument, by class
INTERRUPTIONS = ("Interrupted", "KeyboardInterrupt", "SIGTERMException")  # by name: whoever raises them


class RunRecord(Callback):
    """Keep the record of a run in its folder.

    - ``config.yaml``, the resolved config, is written as a fit begins. Checkpoints hold it, too, as text. Every logger
      gets it as flat hyper-parameters, with secrets masked.
    - ``provenance.json`` says what the run is made from. A resumed fit adds its own, under ``continued``.
    - ``status.json`` and ``metrics.json`` are written after each validation and epoch, and as a fit ends, in whatever
      way. ``validate`` and ``test`` put their metrics into those of the run they belong to.

    A run without a logger keeps nothing.

    Args:
        settings: Returns the resolved config as plain data; called once, as a fit begins.
    """

    def __init__(self, settings: Callable[[], dict[str, Any]] = dict) -> None:
        self.seconds_before = 0.0  # taken by earlier fits of the run
        self._read_settings = settings
        self._run: RunFolder | None = None  # on rank zero, of a run that keeps something
        self._clock = 0.0
        self._started = ""  # when the fit of this process began
        self._config = ""
        self._flat_config: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        self._failure: dict[str, Any] | None = None  # where it failed

    # How a fit begins

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        # Lightning would log the model's and the data's settings once more, under bare names, and refuses to where the
        # two have different values of one name.
        trainer.enable_autolog_hparams = False
        folder = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        if self._started:  # it is the test that follows a fit
            return
        settings = self._read_settings() if stage == "fit" else {}
        self._config = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        if folder is None or not trainer.is_global_zero:
            return
        run = self._run = RunFolder(Path(folder))
        self._metrics = read_json(run.metrics)
        if stage != "fit":
            return

        # What an earlier fit of the run has left stays, but for the test of weights that this one replaces.
        self._metrics |= {"test": None, "test_checkpoint": None}
        self.seconds_before = self._metrics.get("seconds", 0.0)
        self._clock = time.monotonic()
        self._started = now()
        self._write(trainer)
        self._write_origin(trainer, run)

        write_text(run.config, self._config)
        settings = flatten(mask(settings))
        self._flat_config = {re.sub(r"[^\w./ :-]", "_", name): value for name, value in settings.items()}
        log_settings(trainer, self._flat_config)
        save_logger_ids(trainer.loggers, run)

    def _write_origin(self, trainer: Trainer, run: RunFolder) -> None:
        origin, diff = describe_origin(trainer)
        if diff:
            write_text(run.path / origin["uncommitted"]["file"], diff)
        first = read_json(run.provenance)
        if first:
            first["continued"] = [*first.get("continued", []), origin]
        write_json(run.provenance, first or origin)

    # While it runs

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._write(trainer)  # only now the checkpoint of the epoch before is written

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}  # reduced: on every rank
        if self._run is None or trainer.sanity_checking:
            return
        metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        if trainer.state.fn == "fit":
            self._metrics["val"] = {name: value for name, value in metrics.items() if name.startswith("val")}
            self._write(trainer)
            return
        part = "test" if trainer.testing else "val"
        checkpoint = Path(trainer.ckpt_path).name if trainer.ckpt_path else None
        self._metrics |= {part: metrics, f"{part}_checkpoint": checkpoint}
        write_json(self._run.metrics, self._metrics)

    on_test_end = on_validation_end

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["config"] = self._config

    # How it ends

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._write(trainer)  # until `log_results`: a test may follow

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        name, signum = type(exception).__name__, getattr(exception, "signum", None)
        reason = signal.Signals(signum).name if signum else mask_text(f"{name}: {first_line(exception)}")
        status = "interrupted" if name in INTERRUPTIONS else "failed"
        self._failure = None if status == "interrupted" else locate_failure(trainer, exception)
        self.end(trainer, status, f"in its test: {reason}" if trainer.testing else reason)

    def end(self, trainer: Trainer, status: str, reason: str | None = None) -> None:
        """Write how the run ended, and fill TensorBoard's HPARAMS tab with the results that `runs` shows."""
        self._write(trainer, status, reason)
        tagged = {f"hp/{name}": value for name, value in results.values(self._metrics).items()}
        for board in trainer.loggers:
            if isinstance(board, TensorBoardLogger) and self._flat_config:
                board.log_hyperparams(self._flat_config, tagged, step=trainer.global_step)
                board.finalize("success")

    def _write(self, trainer: Trainer, status: str = "running", reason: str | None = None) -> None:
        if self._run is None or not self._started:  # no fit has begun here: the run is as it was
            return
        write_json(self._run.status, {
            "status": status,
            "reason": reason,
            "place": self._failure,
            "started": self._started,
            "ended": None if status == "running" else now(),
            "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        })  # fmt: skip
        if trainer.state.fn == "fit":
            self._metrics |= {
                "best": _best(trainer) or self._metrics.get("best"),
                "epochs": trainer.current_epoch,
                "steps": trainer.global_step,
                "seconds": round(self.seconds_before + time.monotonic() - self._clock, 3),
                "peak_memory_gib": round(max(peak_gib(trainer), self._metrics.get("peak_memory_gib", 0.0)), 3),
            }
            write_json(self._run.metrics, self._metrics)


def locate_failure(trainer: Trainer, exception: BaseException) -> dict[str, Any]:
    """Return where a fit failed: epoch, step and batch, and the line, of the team's package if any is."""
    frames = traceback.extract_tb(exception.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(team.package_folder())]
    frame = (own or frames)[-1]
    return {
        "epoch": trainer.current_epoch,
        "step": trainer.global_step,
        "batch": trainer.fit_loop.batch_idx,
        "line": f"{os.path.relpath(frame.filename)}:{frame.lineno}",
    }


def log_results(trainer: Trainer) -> None:
    """Say that a run is finished, after the test that may follow its fit, and log its results beside its settings."""
    for record in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(record, RunRecord):
            record.end(trainer, "finished")


# Loggers get the settings of a run, and go on with what they have begun: the run of W&B, MLflow or Comet


def save_logger_ids(loggers: list[Any], run: RunFolder) -> None:
    """Write what identifies the runs of the loggers, once they have begun."""
    names = {type(logger).__name__: logger for logger in loggers}
    ids = {name: logger.version for name, logger in names.items() if name in IDS}
    if ids:
        write_json(run.path / "loggers.json", ids)


def resume_loggers(loggers: list[Any], run: RunFolder) -> None:
    """Set the arguments of a config's loggers that let each go on with its run.

    Args:
        loggers: Each a class path with its arguments. They are changed.
        run: The run that is resumed or evaluated.
    """
    ids = read_json(run.path / "loggers.json")
    for logger in loggers:
        name = logger["class_path"].rpartition(".")[2]
        if name in ids:
            logger["init_args"][IDS[name]] = ids[name]


def log_settings(trainer: Trainer, settings: dict[str, Any]) -> None:
    """Send the settings of a run to every logger.

    Args:
        trainer: The trainer whose loggers get them.
        settings: Plain values by dotted name.
    """
    for logger in trainer.loggers:
        new = dict(settings)
        if isinstance(logger, MLFlowLogger):  # it refuses to change a value, and a resumed run may train for longer
            run = logger.experiment.get_run(str(logger.run_id)).to_dictionary()
            for name in run["data"]["params"]:
                new.pop(name, None)
        logger.log_hyperparams(new)  # pyright: ignore[reportArgumentType]


def _best(trainer: Trainer) -> dict[str, Any] | None:
    """Return the best value of the checkpoint callback; None without a monitor, or before its first checkpoint."""
    checkpoint: Any = trainer.checkpoint_callback
    if getattr(checkpoint, "best_model_score", None) is None:
        return None
    return {
        "monitor": checkpoint.monitor,
        "mode": checkpoint.mode,
        "value": float(checkpoint.best_model_score),
        "checkpoint": Path(checkpoint.best_model_path).name,
    }
