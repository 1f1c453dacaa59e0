"""How far a longer piece of work is."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2  # seconds without a bar


class SlowProgress:
    """A progress bar on stderr that shows up only where the work takes longer than two seconds.

    Args:
        total: Number of things to be done.
        what: What is being done, such as ``decoding images``.
    """

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self.start = time.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> Self:
        """Start the clock."""
        self.start = time.monotonic()
        return self

    def advance(self, count: int) -> None:
        """Note that ``count`` more things are done."""
        self.done += count
        if self.bar is None and time.monotonic() - self.start > PATIENCE:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.bar.add_task(self.what, total=self.total)
            self.bar.start()
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
