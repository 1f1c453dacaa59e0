"""Runs the checks, each in a process of its own: one that crashes or hangs becomes a line like the others."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from litlab.commands.doctor.line import FAILED, NOTE, TORCH, Line
from litlab.util import team


@dataclass(frozen=True)
class Check:
    """A function that yields lines.

    Attributes:
        group: The heading of the line that stands for it where it does not answer.
        name: What it looks at.
        module: Where it is.
        function: Its name.
        needs_torch: Whether it can do nothing without torch.
        alone: Whether it measures, so that nothing else may run.
        seconds: How long it may take.
    """

    group: str
    name: str
    module: str
    function: str
    needs_torch: bool = False
    alone: bool = False
    seconds: float = 90.0


def run_checks(checks: Sequence[Check], notice: Callable[[list[str]], None]) -> list[Line]:
    """Run checks: those that measure one by one after all others, which run at the same time.

    Args:
        checks: The checks.
        notice: Is told the names of the checks that have not ended, whenever that changes.

    Returns:
        Their lines, in the order of the checks.
    """
    answers: dict[Check, list[Line]] = {}
    rounds = [[check for check in checks if not check.alone], *([check] for check in checks if check.alone)]
    for part in filter(None, rounds):
        notice([check.name for check in checks if check not in answers])
        children = {check: _start(check) for check in part}
        with ThreadPoolExecutor(len(part)) as threads:
            try:
                asked = {threads.submit(_answer, check, child): check for check, child in children.items()}
                for done in as_completed(asked):
                    answers[asked[done]] = done.result()
                    notice([check.name for check in checks if check not in answers])
            finally:  # after Ctrl-C the threads would wait for them
                for child in children.values():
                    _kill(child)
    torch_failed = any(line.name == TORCH and line.status == FAILED for lines in answers.values() for line in lines)
    return [
        line for check in checks for line in (_without_torch(check, answers[check]) if torch_failed else answers[check])
    ]


def _start(check: Check) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "litlab.commands.doctor.child", team.package(), check.module, check.function]
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # what it has started is killed with it
    )


def _kill(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended (Linux, macOS)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)


def _answer(check: Check, child: subprocess.Popen[str]) -> list[Line]:
    """Return the lines of a check, and one more where it did not come to its end."""
    trouble = ""
    try:
        out, noise = child.communicate(timeout=check.seconds)
    except subprocess.TimeoutExpired:
        trouble = f"no answer in {check.seconds:.0f} s"
        _kill(child)
        try:
            out, noise = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # a file system that hangs lets nothing go
            out, noise = "", ""
    found = [json.loads(text) for text in out.splitlines() if text.endswith("}")]
    lines = [Line(**fields) for fields in found if "error" not in fields]
    said = [line for line in noise.splitlines() if line.strip()]
    raised = next((fields for fields in found if "error" in fields), None)
    if raised and raised["missing"]:  # the line on packages fails
        return [*lines, Line(check.group, check.name, NOTE, f"not checked, as there is no module {raised['missing']}")]
    if raised:
        trouble = f"the check raised {raised['error']}"
    elif child.returncode and not trouble:
        trouble = f"the check's process {_end(child.returncode, said)}"
    if trouble:
        facts = {"tried": f"{check.module}.{check.function}", "stderr": said[-20:]}
        remedy = f"see its whole output with {team.typed('doctor', '--json')}" if said else ""
        lines.append(Line(check.group, check.name, FAILED, trouble, remedy, facts))
    return lines


def _end(code: int, said: list[str]) -> str:
    """Return how a process ended that could not say it itself."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}{f': {said[-1]}' if said else ''}"


def _without_torch(check: Check, lines: list[Line]) -> list[Line]:
    """Return the lines of a check as they are where torch is broken, which one line says, and not each."""
    if not check.needs_torch:
        return lines
    kept = [line for line in lines if line.status != FAILED and line.name != check.name]
    return [*kept, Line(check.group, check.name, NOTE, "not checked, as torch can't be imported")]
