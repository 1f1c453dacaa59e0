"""A progress bar that costs next to nothing per step, and one line for each finished epoch."""

import math
import time
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from lightning.pytorch.callbacks import Timer
from torch import Tensor

from litlab.callbacks._bar import Bar, clock

NOT_SHOWN = ("vram/", "memory/", "time/", "data/", "lr-")  # in the logs and the summary, too much for a line


class ProgressBar(LightningProgressBar):
    """Show a bar on a terminal, and print each finished epoch with its metrics as one line everywhere.

    In training the bar shows the loss of the last step and the time left of the whole run, validations included: at
    most that, as the run may stop early. Lightning's ``RichProgressBar`` takes locks, reads the metrics (which waits
    for the device) and wakes a drawing thread at every step. This one looks at the clock and draws twice a second; only
    then it waits for the loss. Metrics are read once an epoch. Where the output is not a terminal (a file, a CI log)
    the lines are all there is, without control characters.
    """

    def __init__(self) -> None:
        super().__init__()
        self._enabled = True
        self._bar = Bar()
        self._pace: tuple[float, float] | None = None  # time, and share of the run that was done then
        self._epoch: int | None = None  # the running epoch, from 0
        self._epoch_started = 0.0

    def disable(self) -> None:
        """Show nothing: on ranks above zero, and during Lightning's tuning runs."""
        self._enabled = False

    def enable(self) -> None:
        """Show progress again."""
        self._enabled = True

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print above the bar."""
        if self._enabled:
            from rich import get_console

            get_console().print(*args, **kwargs)

    # Training

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin an epoch: one that is resumed in its middle has no start of its own."""
        self._pace = None
        self._begin_epoch(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the epoch before, whose means are known only now, and begin the next."""
        if self._epoch != trainer.current_epoch:
            self._print_epoch(trainer)
            self._begin_epoch(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance the bar."""
        if not self._bar.is_open:
            return
        if self._pace is None:  # from the end of the first step on: it takes longer than the others
            self._pace = time.monotonic(), _share_done(trainer, batch_idx)
        if self._bar.is_due(batch_idx):
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            notes = [f"loss {float(loss):.4g}"] if isinstance(loss, Tensor) and loss.numel() == 1 else []
            if math.isfinite(left := self._run_left(trainer, batch_idx)):
                notes.append(f"{clock(left)} left")
            self._bar.draw(batch_idx, ", ".join(notes))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the last epoch."""
        self._print_epoch(trainer)
        self._bar.close()

    # Evaluation

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a bar with each data loader's first batch."""
        if self.has_dataloader_changed(dataloader_idx) and not trainer.sanity_checking:
            self._open_evaluation("validate", self.total_val_batches_current_dataloader)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Advance the bar."""
        self._advance(batch_idx)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go back to the epoch's bar, if validation ran inside one."""
        self.reset_dataloader_idx_tracker()
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._bar.close_evaluation()

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a bar with each data loader's first batch."""
        if self.has_dataloader_changed(dataloader_idx):
            self._open_evaluation("test", self.total_test_batches_current_dataloader)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Advance the bar."""
        self._advance(batch_idx)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make room for what other callbacks show at the end of a test."""
        self._bar.close()

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a bar with each data loader's first batch."""
        if self.has_dataloader_changed(dataloader_idx):
            self._open_evaluation("predict", self.total_predict_batches_current_dataloader)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Advance the bar."""
        self._advance(batch_idx)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the terminal as it was."""
        self.reset_dataloader_idx_tracker()
        self._bar.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the terminal as it was, before the error is printed."""
        self._bar.close()

    def _open_evaluation(self, name: str, batches: int | float) -> None:
        if self._enabled:
            self._bar.open_evaluation(name, batches)

    def _advance(self, batch_idx: int) -> None:
        """Draw an evaluation's bar where it is due."""
        if self._bar.is_due(batch_idx):
            left = self._bar.seconds_left(batch_idx)
            self._bar.draw(batch_idx, f"{clock(left)} left" if math.isfinite(left) else "")

    def _run_left(self, trainer: Trainer, batch_idx: int) -> float:
        """Seconds that the rest of the run takes at its pace in this process; inf where nobody knows."""
        assert self._pace is not None
        began, share_then = self._pace
        share = _share_done(trainer, batch_idx)
        left = (time.monotonic() - began) * (1 - share) / (share - share_then) if share > share_then else math.inf
        for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            if isinstance(callback, Timer) and (allowed := callback.time_remaining()) is not None:  # trainer.max_time
                left = min(left, max(allowed, 0.0))
        return left

    # Epochs

    def _epoch_name(self, trainer: Trainer) -> str:
        of = f"/{trainer.max_epochs}" if trainer.max_epochs is not None and trainer.max_epochs > 0 else ""
        return f"epoch {trainer.current_epoch + 1 if self._epoch is None else self._epoch + 1}{of}"

    def _begin_epoch(self, trainer: Trainer) -> None:
        self._epoch = trainer.current_epoch
        self._epoch_started = time.monotonic()
        if self._enabled:
            self._bar.open_epoch(self._epoch_name(trainer), self.total_train_batches)

    def _print_epoch(self, trainer: Trainer) -> None:
        if not self._enabled or self._epoch is None:
            return
        metrics = [
            f"{name} {float(value):.4g}"
            for name, value in sorted(trainer.callback_metrics.items())
            if not name.startswith(NOT_SHOWN) and not name.endswith("_step")
        ]
        seconds = time.monotonic() - self._epoch_started
        line = "  ".join([self._epoch_name(trainer), *metrics, f"{seconds:.1f} s"])
        self.print(line, highlight=False, markup=False, soft_wrap=True)
        self._epoch = None


def _share_done(trainer: Trainer, batch_idx: int) -> float:
    """The share of the run that is done after a batch, by the limit that ends it first; 0 where there is none."""
    shares = [0.0]
    if trainer.max_epochs is not None and trainer.max_epochs > 0 and math.isfinite(trainer.num_training_batches):
        shares.append((trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches) / trainer.max_epochs)
    if trainer.max_steps > 0:
        shares.append(trainer.global_step / trainer.max_steps)
    return min(max(shares), 1.0)
