"""A progress bar that costs next to nothing per step, and one line for each finished epoch.

Lightning's bar is drawn every so many steps, whatever they take, has no loss that isn't logged for
it, and leaves no metrics of an epoch behind.
"""

import math
import shutil
import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from litlab.util.text import MOST_DECIMALS, count_decimals, format_number

NOT_SHOWN = ("vram/", "memory/", "time/", "lr-")  # in the logs and the summary, too much for a line
SECONDS_BETWEEN_DRAWS = 0.5


class ProgressBar(TQDMProgressBar):
    """Show Lightning's bar on a terminal, and print each finished epoch with its metrics as one
    line everywhere.

    In training, the bar has the loss of the last step and what the model logs with
    ``prog_bar=True``. If the output is not a terminal (a file, a CI log), there are only the lines,
    without control characters.

    The bar is drawn twice a second: drawing also reads the metrics, which waits for the device.
    Drawn at every step, as Lightning's is, a bar takes half as long as the step of a tiny network.
    When a bar has ended, it disappears: the lines and the results are what you want to read.
    """

    def __init__(self) -> None:
        super().__init__(refresh_rate=int(sys.stdout.isatty()))  # 0: no bars
        self._next_draw = 0.0
        # Of the last training step; a model of manual optimization need not return any
        self._loss: Any = None
        self._epoch: int | None = None  # the running epoch, from 0
        self._epoch_start = 0.0
        # Of each metric: its decimals, as of its first value, and the width of the longest so far
        self._decimals: dict[str, int] = {}
        self._widths: dict[str, int] = {}

    def init_train_tqdm(self) -> Tqdm:
        return _remove_at_end(super().init_train_tqdm())

    def init_validation_tqdm(self) -> Tqdm:
        return _remove_at_end(super().init_validation_tqdm())

    def init_test_tqdm(self) -> Tqdm:
        return _remove_at_end(super().init_test_tqdm())

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        loss = {} if self._loss is None else {"loss": format_number(float(self._loss))}
        # The loss first: a narrow terminal cuts off what is last
        metrics = loss | super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)  # the last letters of the run's folder
        return metrics

    def on_train_start(self, *args: Any) -> None:
        super().on_train_start(*args)
        self._begin_epoch()  # one that is resumed in its middle has no start of its own

    def on_train_epoch_start(self, trainer: Trainer, *args: Any) -> None:
        super().on_train_epoch_start(trainer, *args)
        if self._epoch != self.trainer.current_epoch:
            self._print_epoch()  # the one before, whose means are known only now
            self._begin_epoch()
        self.train_progress_bar.set_description(
            self._name_epoch(trainer.current_epoch)
        )  # as in the line, from 1

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.is_disabled:
            return
        self._loss = outputs.get("loss")  # not the rest: it takes memory
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_end(self, *args: Any) -> None:
        self._print_epoch()
        super().on_train_end(*args)

    def on_exception(self, *_: Any, **__: Any) -> None:
        if self.is_enabled:
            print(flush=True)  # the error begins a line of its own

    def _should_update(self, current: int, total: int) -> bool:
        """Return whether to draw after this batch: some time after the last time, and after the
        last batch.

        Lightning (2.6.6) asks this of every bar, with the number of batches that are done and of
        all.
        """
        now = time.monotonic()
        if self.is_disabled or (now < self._next_draw and current != total):
            return False
        self._next_draw = now + SECONDS_BETWEEN_DRAWS
        return True

    def _begin_epoch(self) -> None:
        self._epoch, self._epoch_start = self.trainer.current_epoch, time.monotonic()

    def _name_epoch(self, epoch: int) -> str:
        """Return what an epoch is called, as in ``epoch  3/10``, counted from 1."""
        limit = self.trainer.max_epochs or -1
        return f"epoch {epoch + 1:{len(str(limit))}}/{limit}" if limit > 0 else f"epoch {epoch + 1}"

    def _print_epoch(self) -> None:
        if self._epoch is None or not self.trainer.is_global_zero:
            return
        parts = [self._name_epoch(self._epoch)]
        for name, value in sorted(self.trainer.callback_metrics.items()):
            if not name.startswith(NOT_SHOWN) and not name.endswith("_step"):
                number = float(value)
                places = min(MOST_DECIMALS, count_decimals([number]))
                text = format_number(number, self._decimals.setdefault(name, places))
                self._widths[name] = max(self._widths.get(name, 0), len(text))
                parts.append(f"{name} {text:{self._widths[name]}}")
        Tqdm.write(_wrap([*parts, f"{time.monotonic() - self._epoch_start:.1f} s"]))
        self._epoch = None


def _remove_at_end(bar: Tqdm) -> Tqdm:
    bar.leave = False
    return bar


def _wrap(parts: list[str]) -> str:
    """Join the parts of a line, broken between them if the terminal is narrower."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(" " * (len(parts[0]) + 2) + part)
    return "\n".join(line.rstrip() for line in lines)
