"""A progress bar that costs next to nothing per step, and one line for each finished epoch."""

import time
from typing import TYPE_CHECKING, Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SECONDS_BETWEEN_DRAWS = 0.5
NOT_SHOWN = ("vram/", "memory/", "time/", "data/", "lr-")  # in the logs and the summary, too much for a line


class ProgressBar(LightningProgressBar):
    """Show a bar on a terminal, and print each finished epoch with its metrics as one line everywhere.

    Lightning's ``RichProgressBar`` takes locks, reads the metrics (which waits for the device) and wakes a drawing
    thread at every step. This one looks at the clock and draws twice a second; metrics are read once an epoch.
    Where the output is no terminal (a file, a CI log) the lines are all there is, without control characters.
    """

    def __init__(self) -> None:
        super().__init__()
        self._enabled = True
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._next_draw = 0.0
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
        self._advance(batch_idx)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the last epoch."""
        self._print_epoch(trainer)
        self._close()

    # Evaluation

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a bar with each data loader's first batch."""
        if self.has_dataloader_changed(dataloader_idx) and not trainer.sanity_checking:
            self._open("validate", self.total_val_batches_current_dataloader)

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
            self._open(self._epoch_name(trainer), self.total_train_batches)

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a bar with each data loader's first batch."""
        if self.has_dataloader_changed(dataloader_idx):
            self._open("test", self.total_test_batches_current_dataloader)

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
        self._close()

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a bar with each data loader's first batch."""
        if self.has_dataloader_changed(dataloader_idx):
            self._open("predict", self.total_predict_batches_current_dataloader)

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
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the terminal as it was, before the error is printed."""
        self._close()

    # The bar

    def _open(self, name: str, total: int | float) -> None:
        """Show a bar of this name, in place of the one before; nothing where nobody looks."""
        if not self._enabled:
            return
        from rich import get_console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as TimeLeftColumn

        if self._progress is None:
            if not get_console().is_terminal:
                return
            text = TextColumn("{task.description}")
            columns = [text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeLeftColumn()]
            # No drawing thread: it would compete with the training loop for the interpreter.
            self._progress = Progress(*columns, console=get_console(), auto_refresh=False, transient=True)
            self._progress.start()
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=None if total == float("inf") else total)
        self._next_draw = 0.0

    def _advance(self, batch_idx: int) -> None:
        if self._task is None or time.monotonic() < self._next_draw:
            return
        assert self._progress is not None
        self._progress.update(self._task, completed=batch_idx + 1, refresh=True)
        self._next_draw = time.monotonic() + SECONDS_BETWEEN_DRAWS

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = None

    # Epochs

    def _epoch_name(self, trainer: Trainer) -> str:
        of = f"/{trainer.max_epochs}" if trainer.max_epochs is not None and trainer.max_epochs > 0 else ""
        return f"epoch {trainer.current_epoch + 1 if self._epoch is None else self._epoch + 1}{of}"

    def _begin_epoch(self, trainer: Trainer) -> None:
        self._epoch = trainer.current_epoch
        self._epoch_started = time.monotonic()
        self._open(self._epoch_name(trainer), self.total_train_batches)

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
