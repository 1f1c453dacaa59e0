"""Commands in processes of their own, one after another: the fits of ``fit --seeds``, the trials of ``bench``."""

import os
import signal
import sys
from pathlib import Path
from subprocess import STDOUT, Popen, TimeoutExpired

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # the last one: SLURM's time limit


def run_child(module: str, *arguments: str, log: Path | None = None, seconds: float | None = None) -> int:
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
    children: list[Popen] = []
    signals: list[int] = []

    def pass_on(signum: int, _: object) -> None:
        signals.append(signum)
        for child in children:
            child.send_signal(signum)

    handlers = {signum: signal.signal(signum, pass_on) for signum in PASSED_ON}
    output = None if log is None else log.open("wb")
    try:
        command = [sys.executable, "-m", module, *arguments]
        children.append(Popen(command, start_new_session=True, stdout=output, stderr=output and STDOUT))
        code = children[0].wait(seconds)
    except TimeoutExpired:
        os.killpg(children[0].pid, signal.SIGKILL)  # and the workers of its loaders
        children[0].wait()
        raise
    finally:
        if output is not None:
            output.close()
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
    return 128 + signals[0] if signals else code


def explain_failure(code: int, log: Path) -> str:
    """Return in one line why a child failed.

    Args:
        code: What `run_child` returned.
        log: What it has printed.
    """
    if code < 0:
        hint = ": perhaps there was too little memory" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{hint}"
    lines = log.read_text(errors="replace").splitlines() or ["it printed nothing"]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else f"exit code {code}: {lines[-1]}"
