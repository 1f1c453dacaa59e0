"""Processes of commands that run many fits, forked from Python's own fork server, which has done the imports."""

import atexit
import contextlib
import math
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from litlab.commands.sweep.variables import PACKAGE, TRIAL
from litlab.util.team import package

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_SAVE = 60.0  # for a fit that is asked to stop
FORKS = get_context("forkserver")
SHOW_CURSOR = b"\x1b[?25h"  # which a table that is updated hides
TAIL = 20  # lines that are kept of what a process has printed
SERVER_LOST = 255  # exit code that multiprocessing gives a process whose fork server was killed

# Starting a process polls all others of the command, and of two threads that poll one only one gets its exit code.
_lock = threading.Lock()


class Unfinished(BaseException):
    """A process was not left to finish.

    Args:
        killed: Whether the fork server was killed, and not the command asked to stop.
    """

    def __init__(self, killed: bool) -> None:
        super().__init__()
        self.killed = killed


@dataclass
class Stop:
    """Whether a command was asked to stop: SIGINT, SIGTERM, SIGHUP, or a thread of it that failed."""

    requested: bool = False
    signum: int | None = None  # the signal

    def listen(self) -> None:
        """Handle the signals from now on; a second one ends the command at once, and the fits notice."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(signum, self._hear)

    def _hear(self, signum: int, _: Any) -> None:
        if self.requested:
            if os.isatty(1):
                os.write(1, SHOW_CURSOR)
            os._exit(128 + signum)
        self.requested, self.signum = True, signum


def use_fork_server(threads: int | None = None) -> None:
    """Choose what the fork server imports, before the first process is started.

    Args:
        threads: How many threads each process may use, where ``OMP_NUM_THREADS`` is not set; None: as many as it likes.
    """
    if threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # read when torch is imported
    quiet = (os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker:UserWarning")  # at the end, of killed processes
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, quiet))
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the other check initializes CUDA, which can't be forked then
    os.environ[PACKAGE] = package()
    FORKS.set_forkserver_preload(["litlab.commands.sweep.preload"])


def run(
    target: Callable[..., None],
    *arguments: Any,
    hear: Callable[[Any], Any],
    stop: Stop,
    stall_seconds: float,
    seconds_to_save: float = SECONDS_TO_SAVE,
) -> int | None:
    """Run a function in a process of its own, whose processes all end with it.

    Args:
        target: The function. Its first argument is the connection over which it reports.
        arguments: Its other arguments.
        hear: Called with each report; what it returns is sent back, unless it is None.
        stop: When requested, the process is asked to stop with SIGTERM.
        stall_seconds: After how long without a report the process is killed.
        seconds_to_save: After how long it is killed when it was asked to stop.

    Returns:
        The exit code, or minus the signal that killed it; None if it stalled.

    Raises:
        Unfinished: If the command is to stop, or the fork server was killed.
    """
    here, there = FORKS.Pipe()
    process = FORKS.Process(target=_begin, args=(target, there, *arguments))
    try:
        with _lock:
            process.start()
    except (EOFError, OSError) as error:  # the server was killed just now; the next one is started by itself
        raise Unfinished(killed=not stop.requested) from error
    there.close()
    group = process.pid
    assert group is not None
    last_report, kill_at, stalled = time.monotonic(), math.inf, False
    sources: list[Any] = [here, process.sentinel]
    try:
        while process.sentinel in sources:
            ready = wait(sources, SECONDS_BETWEEN_LOOKS)
            now = time.monotonic()
            if here in ready:  # first: it may have reported before it ended
                try:
                    report = here.recv()
                except (EOFError, OSError):  # it has closed its end, or was killed, which the sentinel will say
                    sources.remove(here)
                else:
                    last_report = now
                    if (answer := hear(report)) is not None:
                        with contextlib.suppress(OSError):
                            here.send(answer)
            elif process.sentinel in ready:
                sources.remove(process.sentinel)
            if stop.requested and kill_at == math.inf and _signal(group, signal.SIGTERM):
                kill_at = now + seconds_to_save
            stalled = stalled or now - last_report > stall_seconds
            if stalled or now > kill_at:
                _signal(group, signal.SIGKILL)
    finally:
        _signal(group, signal.SIGKILL)  # whatever it started and left behind
        wait([process.sentinel])
        with _lock:
            code = process.exitcode
            process.close()
        here.close()
    if stop.requested or code == SERVER_LOST:
        raise Unfinished(killed=not stop.requested)
    return None if stalled else code


def run_project(
    connection: Connection, package: str, arguments: list[str], log: Path, environment: dict[str, str]
) -> None:
    """Become ``python -m PACKAGE ARGUMENTS``, in a process that `run` has started.

    Args:
        connection: Where the fit reports (`litlab.commands.sweep.trial_report`).
        package: Name of the team's package.
        arguments: The command line.
        log: File to which the output is appended.
        environment: Variables to set.
    """
    from litlab.commands.sweep import trial_report

    trial_report.connection = connection
    print_to(log)
    os.environ.update({TRIAL: "1", **environment})
    sys.argv = ["", *arguments]
    try:
        runpy.run_module(package, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves by os._exit


def print_to(log: Path) -> None:
    """Append to a file what this process and its children print from now on."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)


def last_lines(log: Path) -> list[str]:
    """Return the end of what a process has printed to a file, which need not be there."""
    return log.read_text(errors="replace").splitlines()[-TAIL:] if log.is_file() else []


def reason(status: int, tail: list[str]) -> str:
    """Return in one line why a process failed.

    Args:
        status: What `run` returned.
        tail: The last lines that it printed.
    """
    if status < 0:
        hint = ": perhaps it ran out of memory" if status == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-status).name}{hint}"
    if status in (128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGHUP):
        return f"stopped from outside by {signal.Signals(status - 128).name}"
    lines = [line.strip() for line in tail if line.strip() and not line.startswith("traceback in ")]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else f"exit code {status}: {lines[-1] if lines else 'it printed nothing'}"


def _begin(target: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    """Run the target in a process group of its own, which ends with the command."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    threading.Thread(target=_end_with_command, daemon=True).start()
    target(connection, *arguments)


def _end_with_command() -> None:
    """Wait for the end of the command, however it comes; then save the state and end."""
    command = parent_process()
    assert command is not None
    wait([command.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SECONDS_TO_SAVE)
    os.killpg(0, signal.SIGKILL)


def _signal(group: int, signum: signal.Signals) -> bool:
    """Signal the processes of a group; False if there are none (yet)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: the latter for a group of zombies
        os.killpg(group, signum)
        return True
    return False
