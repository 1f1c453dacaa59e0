"""Commands in processes of their own: the fits of ``fit --seeds``, the trials of ``bench`` and
``sweep``.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import STDOUT, Popen, TimeoutExpired
from typing import Any

from litlab.runs.find import list_runs
from litlab.runs.folder import RunFolder
from litlab.util.team import package

# What `StopSignals` handles in a fit; SIGUSR1 announces SLURM's time limit
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def run_fit(folder: Path, arguments: Sequence[str], allowed: str, log: Path | None = None) -> int:
    """Run a fit, or go on where it was stopped; do nothing where it is finished.

    Args:
        folder: Holds the runs of this fit and no others, or nothing yet.
        arguments: Its flags; a fit that goes on has those of its run.
        allowed: Modules that the config of a fit that goes on may name, as ``--allow_modules``.
        log: As of `run_child`.

    Returns:
        The exit code of ``fit``.
    """
    # The newest run is the one that counts: a fit that failed was started over. Where there is no
    # run yet, the folder has no status
    run = next(iter(list_runs(folder)), RunFolder(folder))
    status = run.read_state().get("status")
    if status == "finished":
        return 0
    # It was stopped or killed: it goes on with its own settings, whatever the flags are now
    if status != "failed" and any(run.checkpoints.glob("*.ckpt")):
        arguments = ["--resume", str(run.path), f"--allow_modules={allowed}"]
    return run_child(package(), "fit", *arguments, log=log)


def run_child(
    module: str, *arguments: str, log: Path | None = None, seconds: float | None = None
) -> int:
    """Run ``python -m MODULE ARGUMENTS`` as a process of its own, and pass signals on to it.

    It has a session of its own, so that Ctrl-C in a terminal reaches it once, through this process.

    Args:
        module: Dotted name of a module or package.
        arguments: Its command line.
        log: File for what it prints; None: it prints where this process does.
        seconds: After how long it is killed; None: never.

    Returns:
        Its exit code; 128 and the number of the signal where one has come.

    Raises:
        subprocess.TimeoutExpired: If it was killed because it took too long.
    """
    return run_children(module, [arguments], log, seconds)[0]


def run_children(
    module: str,
    commands: Sequence[Sequence[str]],
    log: Path | None = None,
    seconds: float | None = None,
) -> list[int]:
    """Run ``python -m MODULE ARGUMENTS`` several times at once, as `run_child` does; return the
    exit codes.
    """
    children: list[Popen] = []
    with ExitStack() as stack:
        printed: dict[str, Any] = {}
        if log is not None:
            printed = {"stdout": stack.enter_context(log.open("wb")), "stderr": STDOUT}
        # Handled before the first child is there, or a signal in between would be lost
        signals = stack.enter_context(_passing_signals(children))
        for arguments in commands:
            # The list is the one that the handler goes through: each child is in it at once
            children.append(
                Popen([sys.executable, "-m", module, *arguments], start_new_session=True, **printed)
            )
        try:
            # A signal ends no wait: its handler passes it on, and the children end by themselves
            codes = [child.wait(seconds) for child in children]
        except TimeoutExpired:
            for child in children:
                os.killpg(child.pid, signal.SIGKILL)  # and the workers of its loaders
                child.wait()
            raise
    # A child may end with another code, as one that had not begun to handle signals
    return [128 + signals[0]] * len(codes) if signals else codes


@contextmanager
def _passing_signals(children: list[Popen]) -> Iterator[list[int]]:
    """Pass signals on to children, and list those that have come."""
    signals: list[int] = []

    def pass_on(signum: int, _: object) -> None:
        signals.append(signum)
        for child in children:
            child.send_signal(signum)  # to one that has ended it does nothing

    handlers = {signum: signal.signal(signum, pass_on) for signum in PASSED_ON}
    try:
        yield signals
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


def explain_failure(code: int, log: Path) -> str:
    """Return in one line why a child failed.

    Args:
        code: What `run_child` returned.
        log: What it has printed.
    """
    # The kernel kills what takes too much memory, with SIGKILL and without a word
    if code < 0:
        hint = ": perhaps there was too little memory" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{hint}"
    lines = [
        line
        for line in log.read_text(errors="replace").splitlines()
        if not line.startswith("traceback in ")
    ]
    # Litlab's own line if there is one, else the last of a traceback
    lines = lines or ["it printed nothing"]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else f"exit code {code}: {lines[-1]}"
