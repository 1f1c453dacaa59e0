"""A progress bar that costs next to nothing per step, and one line for each finished epoch.

Lightning's bar is drawn every so many steps, whatever they take, has no loss that isn't logged for
it, and leaves no metrics of an epoch behind.
"""

import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from litlab.util.text import decimals

NOT_SHOWN = ("vram/", "memory/", "time/", "lr-")  # in the logs and the summary, too much for a line
SECONDS_BETWEEN_DRAWS = 0.5


class ProgressBar(TQDMProgressBar):
    """Show Lightning's bar on a terminal, and print each finished epoch with its metrics as one
    line everywhere.

    In training the bar has the loss of the last step and what the model logs with
    ``prog_bar=True``. Where the output is not a terminal (a file, a CI log) the lines are all there
    is, without control characters.

    The bar is drawn twice a second: drawing also reads the metrics, which waits for the device.
    Drawn at every step, as Lightning's is, a bar takes half as long as the step of a tiny network.
    """

    def __init__(self) -> None:
        super().__init__(refresh_rate=int(sys.stdout.isatty()))  # 0: no bars
        self._next_draw = 0.0
        # Of the last training step; a model of manual optimization need not return any
        self._loss: Any = None
        self._epoch: int | None = None  # the running epoch, from 0
        self._epoch_start = 0.0

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        loss = {} if self._loss is None else {"loss": decimals(float(self._loss))}
        metrics = super().get_metrics(trainer, pl_module) | loss
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

    def _print_epoch(self) -> None:
        if self._epoch is None or not self.trainer.is_global_zero:
            return
        limit = self.trainer.max_epochs or -1
        parts = [f"epoch {self._epoch + 1}/{limit}" if limit > 0 else f"epoch {self._epoch + 1}"]
        for name, value in sorted(self.trainer.callback_metrics.items()):
            if not name.startswith(NOT_SHOWN) and not name.endswith("_step"):
                parts.append(f"{name} {decimals(float(value))}")
        Tqdm.write("  ".join([*parts, f"{time.monotonic() - self._epoch_start:.1f} s"]))
        self._epoch = None
