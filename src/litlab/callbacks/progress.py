"""A progress bar that costs next to nothing per step, and one line for each finished epoch."""

import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Timer, TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from torch import Tensor

NOT_SHOWN = ("vram/", "memory/", "time/", "data/", "lr-")  # in the logs and the summary, too much for a line
SECONDS_BETWEEN_DRAWS = 0.5


class ProgressBar(TQDMProgressBar):
    """Show Lightning's bar on a terminal, and print each finished epoch with its metrics as one line everywhere.

    In training the bar has the loss of the last step, what the model logs with ``prog_bar=True``, and the time left of
    the whole run, validations included: at most that, as the run may stop early. Where the output is not a terminal (a
    file, a CI log) the lines are all there is, without control characters.

    The bar is drawn twice a second: drawing also reads the metrics, which waits for the device. Drawn at every step,
    as Lightning's is, a bar takes half as long as the step of a tiny network (``benchmarks/step_overhead.py --bars``).
    """

    BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt}{postfix}"

    def __init__(self) -> None:
        super().__init__()
        self._silent = False
        self._next_draw = 0.0
        self._loss: Any = None  # of the last training step
        self._pace: tuple[float, float] | None = None  # time, and share of the run that was done then
        self._epoch: int | None = None  # the running epoch, from 0
        self._epoch_name = ""
        self._epoch_started = 0.0

    def disable(self) -> None:
        """Show nothing: on ranks above zero, and during Lightning's tuning runs."""
        self._silent = True
        super().disable()

    def enable(self) -> None:
        """Show progress: lines everywhere, bars on a terminal."""
        self._silent = False
        if sys.stdout.isatty():
            super().enable()
        else:
            super().disable()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Look where the output goes."""
        super().setup(trainer, pl_module, stage)
        if not self._silent:
            self.enable()

    def init_train_tqdm(self) -> Tqdm:
        """Return a bar that is gone after training: the lines stay."""
        bar = super().init_train_tqdm()
        bar.leave = False
        return bar

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return what is shown behind the bar of an epoch."""
        metrics: dict[str, Any] = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        if isinstance(self._loss, Tensor) and self._loss.numel() == 1:
            metrics["loss"] = f"{float(self._loss):.4g}"
        left = self._run_left(trainer, trainer.fit_loop.batch_idx)
        if math.isfinite(left):
            metrics["left"] = str(timedelta(seconds=math.ceil(left)))
        return metrics

    def on_train_start(self, *args: Any) -> None:
        """Begin an epoch: one that is resumed in its middle has no start of its own."""
        super().on_train_start(*args)
        self._pace = None
        self._begin_epoch()

    def on_train_epoch_start(self, trainer: Trainer, *args: Any) -> None:
        """Print the epoch before, whose means are known only now, and begin the next."""
        if self._epoch != trainer.current_epoch:
            self._print_epoch()
            self._begin_epoch()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the step's loss for the bar, and advance it where that is due."""
        if self._pace is None:  # from the end of the first step on: it takes longer than the others
            self._pace = time.monotonic(), _share_done(trainer, batch_idx)
        self._loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs  # not the rest: it takes memory
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_end(self, *args: Any) -> None:
        """Print the last epoch."""
        self._print_epoch()
        super().on_train_end(*args)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the line of the bar, before the error is printed."""
        for stage in ("val", "train", "test", "predict"):
            with suppress(TypeError):  # there was no such bar
                getattr(self, f"{stage}_progress_bar").close()

    def _should_update(self, current: int, total: int) -> bool:
        """Return whether to draw after this batch: some time after the last time, and after the last batch.

        Lightning (2.6.6) asks this of every bar, with the number of batches that are done and of all.
        """
        now = time.monotonic()
        if self.is_disabled or (now < self._next_draw and current != total):
            return False
        self._next_draw = now + SECONDS_BETWEEN_DRAWS
        return True

    def _begin_epoch(self) -> None:
        self._epoch, self._epoch_started = self.trainer.current_epoch, time.monotonic()
        epochs = self.trainer.max_epochs
        of = f"/{epochs}" if epochs is not None and epochs > 0 else ""
        self._epoch_name = f"epoch {self._epoch + 1}{of}"
        self.train_progress_bar.set_description(self._epoch_name, refresh=False)
        self.train_progress_bar.reset(self.total_train_batches if math.isfinite(self.total_train_batches) else None)

    def _print_epoch(self) -> None:
        if self._silent or self._epoch is None:
            return
        metrics = [
            f"{name} {float(value):.4g}"
            for name, value in sorted(self.trainer.callback_metrics.items())
            if not name.startswith(NOT_SHOWN) and not name.endswith("_step")
        ]
        seconds = time.monotonic() - self._epoch_started
        Tqdm.write("  ".join([self._epoch_name, *metrics, f"{seconds:.1f} s"]))
        self._epoch = None

    def _run_left(self, trainer: Trainer, batch_idx: int) -> float:
        """Return the seconds that the rest of the run takes at its pace in this process, inf if that is unknown."""
        if self._pace is None:
            return math.inf
        began, share_then = self._pace
        share = _share_done(trainer, batch_idx)
        left = (time.monotonic() - began) * (1 - share) / (share - share_then) if share > share_then else math.inf
        for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            if isinstance(callback, Timer) and (allowed := callback.time_remaining()) is not None:  # trainer.max_time
                left = min(left, max(allowed, 0.0))
        return left


def _share_done(trainer: Trainer, batch_idx: int) -> float:
    """Return the share of the run that is done after a batch, by the limit that ends it first; 0 without a limit."""
    shares = [0.0]
    if trainer.max_epochs is not None and trainer.max_epochs > 0 and math.isfinite(trainer.num_training_batches):
        shares.append((trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches) / trainer.max_epochs)
    if trainer.max_steps > 0:
        shares.append(trainer.global_step / trainer.max_steps)
    return min(max(shares), 1.0)
