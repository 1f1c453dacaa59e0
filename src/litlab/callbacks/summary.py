"""The results of a finished run in one table."""

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from litlab.callbacks.compile import Compile
from litlab.callbacks.memory import VRAM
from litlab.callbacks.reporting.folders import run_folder
from litlab.callbacks.reporting.protocols import Described, MaybeGenerated

if TYPE_CHECKING:
    from rich.table import Table


class RunSummary(Callback):
    """Summarise a run: best metric, test metrics, epochs, minutes, memory, speed, and where to look next.

    The table has the rows that are known: after ``validate`` or ``test`` alone, the metrics and the folder. If the data
    was generated because the real one was missing, the table says so first, the run folder gets a file
    ``GENERATED_DATA.txt``, and the loggers get ``data/generated`` = 1.
    """

    def __init__(self) -> None:
        self._rows: dict[str, str] = {}
        self._results: dict[str, float] = {}  # metrics of the last validate or test
        self._generated = self._random = ""
        self._is_marked = False  # in the loggers
        self._started = 0.0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Note where the run keeps its files and what its data is."""
        folder = run_folder(trainer)  # on every rank: it is broadcast
        if folder is not None:
            folder = _short(folder)
            self._rows["run folder"] = str(folder)
            if any(isinstance(logger, TensorBoardLogger) for logger in trainer.loggers):
                self._rows["TensorBoard"] = f"tensorboard --logdir {folder}"
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, MaybeGenerated) and data.generated:
            what = data.description if isinstance(data, Described) else type(data).__name__
            self._generated = f"GENERATED, not real: {what}. The metrics say nothing about the real data."
            mark = None if folder is None else folder / "GENERATED_DATA.txt"
            self._is_marked = mark is not None and mark.exists()  # in a run that is resumed
            if mark is not None and trainer.is_global_zero:
                mark.write_text(f"This run used data that is {self._generated}\n", encoding="utf-8")

        note = None if folder is None else folder / "RANDOM_WEIGHTS.txt"
        found = (module.stand_in for module in pl_module.modules() if hasattr(module, "stand_in"))  # see `pretrained`
        self._random = str(next(found, note.read_text("utf-8") if note is not None and note.is_file() else ""))
        if self._random and note is not None and trainer.is_global_zero:
            note.write_text(self._random, encoding="utf-8")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock; mark generated data in the loggers."""
        self._started = time.perf_counter()
        if self._generated and not self._is_marked:
            for logger in trainer.loggers:
                logger.log_metrics({"data/generated": 1.0}, step=0)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the results of the fit."""
        limit = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs >= 0 else "no limit"
        self._rows["epochs"] = f"{trainer.current_epoch} of {limit}"
        callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        minutes = (time.perf_counter() - self._started) / 60
        before = sum(getattr(callback, "seconds_before", 0.0) for callback in callbacks) / 60  # the run's record has it
        self._rows["minutes"] = f"{before + minutes:.2f}"
        if before:
            self._rows["minutes"] += f" ({minutes:.2f} since it was resumed)"
        for callback in callbacks:
            if isinstance(callback, VRAM) and callback.peak_gib is not None:
                self._rows["peak memory"] = f"{callback.peak_gib:.2f} GiB"
                self._rows["samples/s"] = f"{statistics.median(callback.samples_per_second):,.0f} (median epoch)"
        self._note_compilation(trainer)
        checkpoint = trainer.checkpoint_callback
        if isinstance(checkpoint, ModelCheckpoint) and checkpoint.best_model_path and trainer.is_global_zero:
            if checkpoint.best_model_score is not None:
                self._rows[f"best {checkpoint.monitor}"] = f"{float(checkpoint.best_model_score):.4g}"
            self._rows["best checkpoint"] = str(_short(Path(checkpoint.best_model_path)))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the metrics of ``validate`` alone; the progress bar shows those inside a fit."""
        if trainer.state.fn == "validate":
            self._keep_results(trainer)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the test metrics."""
        self._keep_results(trainer)
        self._note_compilation(trainer)

    def _keep_results(self, trainer: Trainer) -> None:
        self._results = {name: float(value) for name, value in trainer.callback_metrics.items()}

    def _note_compilation(self, trainer: Trainer) -> None:
        for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            if isinstance(callback, Compile) and callback.mode is not None:
                self._rows["compile"] = f"{callback.seconds:.1f} s"

    def table(self) -> "Table":
        """Return the table of what is known so far."""
        from rich.table import Table
        from rich.text import Text

        table = Table(show_header=False, title="Run summary", title_justify="left")
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")  # paths are long
        if self._generated:
            table.add_row("DATA", Text(self._generated), style="bold red")
        if self._random:
            table.add_row("WEIGHTS", Text(self._random), style="bold red")
        metrics = {name: f"{value:.4g}" for name, value in self._results.items()}
        best = {name: value for name, value in self._rows.items() if name.startswith("best ")}
        rest = {name: value for name, value in self._rows.items() if name not in best}
        path = best.pop("best checkpoint", None)
        rows = best | metrics | rest | ({} if path is None else {"best checkpoint": path})
        for name, value in rows.items():
            table.add_row(Text(name), Text(value))  # not strings: brackets in a path are not markup
        return table

    def print_summary(self, trainer: Trainer) -> None:
        """Print the table on rank zero, if anything is known.

        Args:
            trainer: The trainer that ran, after its ``fit`` and the test that may follow.
        """
        if not trainer.is_global_zero:
            return
        from rich import get_console

        table = self.table()
        if table.row_count:
            get_console().print(table)


def _short(path: Path) -> Path:
    """Return a path as one would type it here: relative to the working directory if it is inside."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
