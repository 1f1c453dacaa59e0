"""A progress bar that costs next to nothing per step, and one line for each finished epoch.

Lightning's bar is drawn every so many steps, whatever they take, has no loss that isn't logged for it, and leaves no
metrics of an epoch behind.
"""

import math
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from torch import Tensor

NOT_SHOWN = ("vram/", "memory/", "time/", "lr-")  # in the logs and the summary, too much for a line
SECONDS_BETWEEN_DRAWS = 0.5


class ProgressBar(TQDMProgressBar):
    """Show Lightning's bar on a terminal, and print each finished epoch with its metrics as one line everywhere.

    The line ends with the seconds of the epoch and the time left until ``max_epochs`` at that pace; the run may stop
    earlier. In training the bar has the loss of the last step and what the model logs with ``prog_bar=True``. Where the
    output is not a terminal (a file, a CI log) the lines are all there is, without control characters.

    The bar is drawn twice a second: drawing also reads the metrics, which waits for the device. Drawn at every step,
    as Lightning's is, a bar takes half as long as the step of a tiny network (``benchmarks/step_overhead.py --bars``).
    """

    def __init__(self) -> None:
        super().__init__(refresh_rate=int(sys.stdout.isatty()))  # 0: no bars
        self._next_draw = 0.0
        self._loss: Any = None  # of the last training step
        self._epoch: int | None = None  # the running epoch, from 0
        self._epoch_name = ""
        self._epoch_start = 0.0

    def init_train_tqdm(self) -> Tqdm:
        bar = super().init_train_tqdm()
        bar.leave = False  # the lines stay
        return bar

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        metrics: dict[str, Any] = super().get_metrics(trainer, pl_module)
        if isinstance(self._loss, Tensor):
            metrics["loss"] = f"{float(self._loss.mean()):.4g}"
        return metrics

    def on_train_start(self, trainer: Trainer, *args: Any) -> None:
        super().on_train_start(trainer, *args)
        self._begin_epoch(trainer)  # one that is resumed in its middle has no start of its own

    def on_train_epoch_start(self, trainer: Trainer, *args: Any) -> None:
        if self._epoch != trainer.current_epoch:
            self._print_epoch(trainer)  # the one before, whose means are known only now
            self._begin_epoch(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *args: Any) -> None:
        self._loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs  # not the rest: it takes memory
        super().on_train_batch_end(trainer, pl_module, outputs, *args)

    def on_train_end(self, trainer: Trainer, *args: Any) -> None:
        self._print_epoch(trainer)
        super().on_train_end(trainer, *args)

    def on_exception(self, *args: Any) -> None:
        if self.is_enabled:
            print(flush=True)  # the error begins a line of its own

    def _should_update(self, current: int, total: int) -> bool:
        """Return whether to draw after this batch: some time after the last time, and after the last batch.

        Lightning (2.6.6) asks this of every bar, with the number of batches that are done and of all.
        """
        now = time.monotonic()
        if self.is_disabled or (now < self._next_draw and current != total):
            return False
        self._next_draw = now + SECONDS_BETWEEN_DRAWS
        return True

    def _begin_epoch(self, trainer: Trainer) -> None:
        self._epoch, self._epoch_start = trainer.current_epoch, time.monotonic()
        of_all = f"/{trainer.max_epochs}" if _limit(trainer) else ""
        self._epoch_name = f"epoch {self._epoch + 1}{of_all}"
        batches = self.total_train_batches
        self.train_progress_bar.set_description(self._epoch_name, refresh=False)
        self.train_progress_bar.reset(batches if math.isfinite(batches) else None)

    def _print_epoch(self, trainer: Trainer) -> None:
        if self._epoch is None or not trainer.is_global_zero:
            return
        parts = [self._epoch_name]
        for name, value in sorted(trainer.callback_metrics.items()):
            if not name.startswith(NOT_SHOWN) and not name.endswith("_step"):
                parts.append(f"{name} {float(value):.4g}")
        seconds = time.monotonic() - self._epoch_start
        parts.append(f"{seconds:.1f} s")
        epochs_left = _limit(trainer) - self._epoch - 1
        if epochs_left > 0:
            parts.append(f"{timedelta(seconds=math.ceil(seconds * epochs_left))} left")
        Tqdm.write("  ".join(parts))
        self._epoch = None


def _limit(trainer: Trainer) -> int:
    """Return the number of epochs after which the run ends; 0 where there is none."""
    return max(trainer.max_epochs or 0, 0)
