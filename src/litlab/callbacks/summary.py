"""The results of a finished run in one table."""

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from litlab.callbacks.compile import Compile
from litlab.callbacks.memory import VRAM
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
        self._warnings: dict[str, str] = {}  # by the name of their file
        self._start: float | None = None  # of a fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._start = time.perf_counter()
        data = getattr(trainer, "datamodule", None)
        if getattr(data, "generated", False):
            description = getattr(data, "description", type(data).__name__)
            text = f"GENERATED, not real: {description}. The metrics say nothing about the real data."
            self._warnings["GENERATED_DATA.txt"] = text
        for module in pl_module.modules():
            if hasattr(module, "stand_in"):  # see `litlab.nn.pretrained`
                self._warnings["RANDOM_WEIGHTS.txt"] = str(module.stand_in)

        # Later commands on the run find the warnings in its folder.
        folder = run_folder(trainer)  # on every rank: it is broadcast
        if folder is None or not trainer.is_global_zero:
            return
        for name, text in self._warnings.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name in ("GENERATED_DATA.txt", "RANDOM_WEIGHTS.txt"):
            if (folder / name).is_file():
                self._warnings[name] = (folder / name).read_text(encoding="utf-8")

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
        for name, text in self._warnings.items():
            table.add_row(Path(name).stem, Text(text), style="bold red")
        for name, value in self._collect(trainer).items():
            table.add_row(Text(name), Text(value))  # not strings: brackets in a path are not markup
        return table

    def _collect(self, trainer: Trainer) -> dict[str, str]:
        rows: dict[str, str] = {}
        checkpoint: Any = trainer.checkpoint_callback
        best_path = getattr(checkpoint, "best_model_path", "") if self._start is not None else ""
        folder = run_folder(trainer)
        callbacks: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]

        # Results.
        if best_path and checkpoint.best_model_score is not None:
            rows[f"best {checkpoint.monitor}"] = f"{float(checkpoint.best_model_score):.4g}"
        if trainer.state.fn != "fit":
            for name, value in trainer.callback_metrics.items():
                rows[name] = f"{float(value):.4g}"

        # What it took.
        if self._start is not None:
            seconds_before = sum(getattr(callback, "seconds_before", 0.0) for callback in callbacks)  # of `RunRecord`
            rows["epochs"] = str(trainer.current_epoch)
            rows["minutes"] = f"{(seconds_before + time.perf_counter() - self._start) / 60:.2f}"
        for callback in callbacks:
            if isinstance(callback, VRAM) and callback.peak_gib is not None:
                rows["peak memory"] = f"{callback.peak_gib:.2f} GiB"
                rows["samples/s"] = f"{statistics.median(callback.samples_per_second):,.0f} (median epoch)"
            if isinstance(callback, Compile) and callback.mode is not None:
                rows["compile"] = f"{callback.seconds:.1f} s"

        # Where to look next.
        if folder is not None:
            rows["run folder"] = os.path.relpath(folder)
            if any(isinstance(logger, TensorBoardLogger) for logger in trainer.loggers):
                rows["TensorBoard"] = f"tensorboard --logdir {os.path.relpath(folder)}"
        if best_path:
            rows["best checkpoint"] = os.path.relpath(best_path)
        return rows
