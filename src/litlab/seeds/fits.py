"""The fits of a command: ordinary ones, each a process of its own, which get the signals that the command gets."""

import signal
import sys
from subprocess import PIPE, Popen
from types import TracebackType
from typing import Any, Self

from litlab.util.team import package

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # the last one: SLURM's time limit


class Fits:
    """Runs commands of the team's package, one after another, and passes signals on to the one that runs.

    As a context, it handles the signals. Its processes have sessions of their own, so that Ctrl-C in a terminal reaches
    them once, through this one.
    """

    def __init__(self) -> None:
        self.signum: int | None = None  # the first signal that has come
        self._running: Popen[str] | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Handle the signals; under ``nohup``, SIGHUP stays ignored."""
        for signum in PASSED_ON:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._previous[signum] = signal.signal(signum, self._hear)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Restore the signal handlers."""
        while self._previous:
            signal.signal(*self._previous.popitem())

    def run(self, *arguments: str) -> int:
        """Run a command whose output is this one's.

        Args:
            arguments: Of ``python -m PACKAGE``.

        Returns:
            Its exit code; 128 and the number of the signal where one has come or has killed it.
        """
        sys.stdout.flush()
        return self._code(self._follow(start(*arguments)).wait())

    def read(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code of a command as `run` does, and what it printed to standard output."""
        process = self._follow(start(*arguments, stdout=PIPE))
        printed, _ = process.communicate()
        return self._code(process.wait()), printed

    def _follow(self, process: "Popen[str]") -> "Popen[str]":
        self._running = process
        if self.signum is not None:  # it came while the process was started
            process.send_signal(self.signum)
        return process

    def _code(self, returned: int) -> int:
        if self.signum is not None:
            return 128 + self.signum
        return returned if returned >= 0 else 128 - returned

    def _hear(self, signum: int, _: Any) -> None:
        self.signum = self.signum or signum
        if self._running is not None:
            self._running.send_signal(signum)


def start(*arguments: str, **streams: Any) -> "Popen[str]":
    """Start ``python -m PACKAGE ARGUMENTS``."""
    return Popen([sys.executable, "-m", package(), *arguments], start_new_session=True, text=True, **streams)
