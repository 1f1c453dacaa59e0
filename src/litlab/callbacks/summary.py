"""The results of a finished run in one table."""

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from litlab.callbacks.compile import Compile
from litlab.callbacks.reporting import run_folder

if TYPE_CHECKING:
    from rich.table import Table


class RunSummary(Callback):
    """Summarise a run: best metric, test metrics, epochs, minutes, memory, speed, and where to look next.

    The table has the rows that are known: after ``validate`` or ``test`` alone, the metrics and the folder. If data was
    generated or weights are random because the real ones were missing, the table says so first, and so does a file in
    the run folder, ``GENERATED_DATA.txt`` or ``RANDOM_WEIGHTS.txt``.
    """

    def __init__(self) -> None:
        self._warnings: dict[str, str] = {}
        self._start = 0.0
        self._minutes: float | None = None  # of the fit, once it is over

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        folder = run_folder(trainer)  # on every rank: it is broadcast
        data = getattr(trainer, "datamodule", None)
        if getattr(data, "generated", False):
            description = getattr(data, "description", type(data).__name__)
            self._warnings["DATA"] = f"GENERATED, not real: {description}. The metrics say nothing about the real data."
        for module in pl_module.modules():  # see `litlab.nn.pretrained`
            if hasattr(module, "stand_in"):
                self._warnings["WEIGHTS"] = str(module.stand_in)

        # Later commands on the run find the warnings in its folder.
        for name, file in {"DATA": "GENERATED_DATA.txt", "WEIGHTS": "RANDOM_WEIGHTS.txt"}.items():
            if folder is None:
                continue
            if name in self._warnings and trainer.is_global_zero:
                (folder / file).write_text(self._warnings[name], encoding="utf-8")
            elif (folder / file).is_file():
                self._warnings.setdefault(name, (folder / file).read_text(encoding="utf-8"))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start = time.perf_counter()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._minutes = (time.perf_counter() - self._start) / 60

    def print_summary(self, trainer: Trainer) -> None:
        """Print the table. Call it on every rank; the first one prints.

        Args:
            trainer: The trainer that ran, after its ``fit`` and the test that may follow.
        """
        from rich import get_console

        table = self.make_table(trainer)
        if trainer.is_global_zero and table.row_count:
            get_console().print(table)

    def make_table(self, trainer: Trainer) -> "Table":
        """Return the table of what is known so far."""
        from rich.table import Table
        from rich.text import Text

        table = Table(show_header=False, title="Run summary", title_justify="left")
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")  # paths are long
        for name, value in self._warnings.items():
            table.add_row(name, Text(value), style="bold red")
        for name, value in self._summarize(trainer).items():
            table.add_row(Text(name), Text(value))  # not strings: brackets in a path are not markup
        return table

    def _summarize(self, trainer: Trainer) -> dict[str, str]:
        rows: dict[str, str] = {}
        callbacks: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        folder, checkpoint = run_folder(trainer), trainer.checkpoint_callback
        best_path = checkpoint.best_model_path if isinstance(checkpoint, ModelCheckpoint) else ""

        # Results.
        if self._minutes is not None and best_path and checkpoint.best_model_score is not None:
            rows[f"best {checkpoint.monitor}"] = f"{float(checkpoint.best_model_score):.4g}"
        if trainer.state.fn != "fit":
            for name, value in trainer.callback_metrics.items():
                rows[name] = f"{float(value):.4g}"

        # What it took.
        if self._minutes is not None:
            minutes_before = sum(getattr(callback, "seconds_before", 0.0) for callback in callbacks) / 60  # `RunRecord`
            rows["epochs"] = str(trainer.current_epoch)
            rows["minutes"] = f"{minutes_before + self._minutes:.2f}"
        for callback in callbacks:
            if getattr(callback, "peak_gib", None) is not None:  # of `VRAM`
                rows["peak memory"] = f"{callback.peak_gib:.2f} GiB"
                rows["samples/s"] = f"{statistics.median(callback.samples_per_second):,.0f} (median epoch)"
            if isinstance(callback, Compile) and callback.mode is not None:
                rows["compile"] = callback.report()

        # Where to look next.
        if folder is not None:
            rows["run folder"] = _shorten(folder)
            if any(isinstance(logger, TensorBoardLogger) for logger in trainer.loggers):
                rows["TensorBoard"] = f"tensorboard --logdir {_shorten(folder)}"
        if self._minutes is not None and best_path:
            rows["best checkpoint"] = _shorten(Path(best_path))
        return rows


def _shorten(path: Path) -> str:
    """Return a path as one would type it here: relative to the working directory if it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
