"""The results of a finished run in one table."""

import os
import shlex
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichModelSummary

from litlab.callbacks.compile import Compile
from litlab.callbacks.memory import VRAM
from litlab.callbacks.reporting import run_folder
from litlab.util.files import write_output
from litlab.util.text import MOST_DECIMALS, count_decimals, format_number, print_table

SMALLEST_MB = 0.01  # of a model whose size is worth a word


class ModelTable(RichModelSummary):
    """Lightning's table of the model's parts, with FLOPs where they are counted.

    They are counted if the model has an ``example_input_array``; otherwise Lightning (2.6.6) shows
    0.
    """

    @staticmethod
    def summarize(  # pyright: ignore[reportIncompatibleMethodOverride]
        summary_data: list[tuple[str, list[str]]], *totals: Any, total_flops: int, **options: Any
    ) -> None:
        from rich.table import Table

        columns = {name: cells for name, cells in summary_data if total_flops or name != "FLOPs"}
        table = Table(*columns)
        for row in zip(*columns.values(), strict=True):
            if "StageMetrics" not in row:  # of each stage: no part of the network
                table.add_row(*row)
        print_table(table)
        size = f", {totals[2]:.3g} MB" if totals[2] >= SMALLEST_MB else ""
        print(f"{totals[0]:,} parameters, {totals[1]:,} of them trained{size}", flush=True)


class RunSummary(Callback):
    """Summarise a run: best metric, test metrics, epochs, minutes, memory, speed, and where to look
        next.

    The table has only the rows that are known: after ``validate`` or ``test``, the metrics and the
    folder. If data was generated or weights are random because the real ones were missing, the
    table says so first, and so does a file in the run folder, ``GENERATED_DATA.txt`` or
    ``RANDOM_WEIGHTS.txt``.
    """

    def __init__(self) -> None:
        self._warnings: dict[str, str] = {}  # by the name of their file, without its suffix
        self._start: float | None = None  # of a fit
        self._end = 0.0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._start = time.perf_counter()
        data = getattr(trainer, "datamodule", None)
        if getattr(data, "generated", False):
            description = getattr(data, "description", type(data).__name__)
            self._warnings["GENERATED_DATA"] = (
                f"not real: {description}. The metrics say nothing about the real data."
            )
        for module in pl_module.modules():
            if hasattr(module, "stand_in"):  # see `litlab.nn.pretrained`
                self._warnings["RANDOM_WEIGHTS"] = str(module.stand_in)

        folder = run_folder(trainer)  # on every rank: it is broadcast
        if folder is not None and trainer.is_global_zero:
            for name, text in self._warnings.items():
                write_output(folder / f"{name}.txt", text)
            note = folder / "RANDOM_WEIGHTS.txt"  # of the fit, where a test follows by itself
            if note.is_file():
                self._warnings[note.stem] = note.read_text(encoding="utf-8")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._end = time.perf_counter()

    def print_summary(self, trainer: Trainer) -> None:
        """Print the table. Call it on every rank; the first one prints.

        Args:
            trainer: The trainer that ran, after its ``fit`` and the test that may follow.
        """
        from rich.table import Table
        from rich.text import Text

        # Without lines, which a path that is wider than the terminal would break
        table = Table("", "", show_header=False, box=None, pad_edge=False)
        for name, text in self._warnings.items():
            table.add_row(name, Text(text), style="bold red")
        for name, value in self._collect(trainer).items():
            table.add_row(Text(name), Text(value))  # not strings: brackets in a path are not markup
        if trainer.is_global_zero and table.row_count:
            print("Run summary")
            print_table(table)  # paths stay whole, so that they can be copied

    def _collect(self, trainer: Trainer) -> dict[str, str]:
        rows: dict[str, str] = {}
        callbacks: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        checkpoint: Any = trainer.checkpoint_callback
        score = getattr(checkpoint, "best_model_score", None)
        is_fit = self._start is not None

        # Results.
        if is_fit and score is not None:
            rows[f"best {checkpoint.monitor}"] = show_metric(float(score))
        if trainer.state.fn != "fit":
            rows |= {
                name: show_metric(float(value)) for name, value in trainer.callback_metrics.items()
            }

        # On what, and what it took.
        if self._start is not None:
            data: Any = trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
            if hasattr(data, "description") and "GENERATED_DATA" not in self._warnings:
                rows["data"] = str(data.description)
            # Of `RunRecord`
            seconds_before = sum(getattr(callback, "seconds_before", 0.0) for callback in callbacks)
            rows["epochs"] = str(trainer.current_epoch)
            rows["minutes"] = f"{(seconds_before + self._end - self._start) / 60:.2f}"
        for callback in callbacks:
            if isinstance(callback, VRAM) and callback.peak_gib is not None:
                rows["peak memory"] = f"{callback.peak_gib:.2f} GiB"
                rows["samples/s"] = f"{callback.samples_per_second:,.0f} (last epoch)"
            if isinstance(callback, Compile) and callback.mode is not None:
                rows["compile"] = f"{callback.seconds:.1f} s"

        # Where to look next.
        folder = run_folder(trainer)
        if folder is not None:
            rows["run folder"] = os.path.relpath(folder)
            rows["TensorBoard"] = shlex.join(["tensorboard", "--logdir", os.path.relpath(folder)])
        if is_fit and getattr(checkpoint, "best_model_path", ""):
            # From the folder on, as a terminal has 80 columns; `--run FOLDER` takes the best one
            rows["checkpoint"] = os.path.relpath(checkpoint.best_model_path, folder)
        return rows


def show_metric(value: float) -> str:
    return format_number(value, min(MOST_DECIMALS, count_decimals([value])))
