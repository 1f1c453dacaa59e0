"""How far a longer piece of work is."""

import time
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE = 2  # seconds without a bar


class SlowProgress:
    """A progress bar on stderr that shows up only where the work takes longer than two seconds.

    Args:
        total: Number of things to be done.
        what: What is being done, such as ``decoding images``.
    """

    def __init__(self, total: int, what: str) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(what, total=total)
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def advance(self, count: int) -> None:
        self._bar.advance(self._task, count)
        if time.monotonic() - self._start > PATIENCE:
            self._bar.start()

    def __exit__(self, *_: Any) -> None:
        if self._bar.live.is_started:
            self._bar.stop()
