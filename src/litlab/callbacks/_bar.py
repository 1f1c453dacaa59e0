"""The bar of a progress bar, as rich draws it."""

import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

SECONDS_BETWEEN_DRAWS = 0.5


class Bar:
    """One line on a terminal: an epoch's bar, or in its place that of an evaluation. Draws nothing elsewhere."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._epoch: TaskID | None = None  # hidden while validation runs inside the epoch
        self._shown: TaskID | None = None
        self._totals: dict[TaskID, float] = {}  # batches
        self._opened = 0.0
        self._next_draw = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a bar on the terminal."""
        return self._progress is not None

    def open_epoch(self, name: str, batches: int | float) -> None:
        """Show an epoch's bar in place of the one before."""
        if self._shown is not None and self._shown != self._epoch:
            self._remove(self._shown)
        if self._epoch is not None:
            self._remove(self._epoch)
        self._shown = self._epoch = self._add(name, batches)

    def open_evaluation(self, name: str, batches: int | float) -> None:
        """Show an evaluation's bar; an epoch's stays, hidden."""
        if self._progress is not None and self._shown is not None:
            if self._shown == self._epoch:
                self._progress.update(self._shown, visible=False)
            else:
                self._remove(self._shown)
        self._shown = self._add(name, batches)

    def close_evaluation(self) -> None:
        """Show the epoch's bar again, as it was."""
        if self._progress is None or self._shown is None or self._epoch is None or self._shown == self._epoch:
            return
        self._remove(self._shown)
        self._progress.update(self._epoch, visible=True)
        self._shown = self._epoch

    def is_due(self, batch_idx: int) -> bool:
        """Whether to draw after this batch: some time after the last time, and after the last batch."""
        if self._shown is None:
            return False
        return time.monotonic() >= self._next_draw or batch_idx + 1 >= self._totals[self._shown]

    def draw(self, batch_idx: int, note: str) -> None:
        """Draw.

        Args:
            batch_idx: The batch that is done, from 0.
            note: What to show behind the bar.
        """
        assert self._progress is not None
        assert self._shown is not None
        self._progress.update(self._shown, completed=batch_idx + 1, note=note, refresh=True)
        self._next_draw = time.monotonic() + SECONDS_BETWEEN_DRAWS

    def seconds_left(self, batch_idx: int) -> float:
        """How long the bar that was opened last goes on at its pace; inf where nobody knows."""
        assert self._shown is not None
        return (time.monotonic() - self._opened) * (self._totals[self._shown] / (batch_idx + 1) - 1)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._epoch = self._shown = None

    def _add(self, name: str, batches: int | float) -> "TaskID | None":
        from rich import get_console
        from rich.progress import Progress

        console = get_console()
        if self._progress is None:
            if not console.is_terminal:
                return None
            # No drawing thread: it would compete with the training loop for the interpreter.
            columns = _columns(console.width)
            self._progress = Progress(*columns, console=console, auto_refresh=False, transient=True)
            self._progress.start()
        self._opened, self._next_draw = time.monotonic(), 0.0
        task = self._progress.add_task(name, total=batches if math.isfinite(batches) else None, note="")
        self._totals[task] = batches
        return task

    def _remove(self, task: "TaskID") -> None:
        assert self._progress is not None
        self._progress.remove_task(task)


def clock(seconds: float) -> str:
    """A duration as hours, minutes and seconds."""
    return str(timedelta(seconds=math.ceil(seconds)))


def _columns(width: int) -> "list[ProgressColumn]":
    """What a terminal of this width has room for; always the note."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    text, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    if width < 54:
        return [text, note]
    if width < 72:
        return [text, MofNCompleteColumn(), note]
    return [text, BarColumn(bar_width=min(40, width - 64)), MofNCompleteColumn(), TimeElapsedColumn(), note]
