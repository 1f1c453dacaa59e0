"""``python -m PACKAGE doctor``: what of this machine is fine, and what to do about the rest."""

import json
import os
import shutil
import sys
import textwrap
import time
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter

from litlab.commands.doctor.line import (
    DATA,
    DEVICES,
    DISK,
    ENVIRONMENT,
    FAILED,
    GROUPS,
    MACHINE,
    NOTE,
    OK,
    PROCESSES,
    PYTHON,
    TOOLS,
    WARNING,
    Line,
)  # fmt: skip
from litlab.commands.doctor.run_checks import Check, run_checks
from litlab.util.options import Options, answer

DESCRIPTION = """\
Check this machine: Python and packages, torch and its devices with measured speeds, memory, disk, the data
of the configs, compiler, processes and extras. Each line is ok, a note (optional, or it can't be checked), a
warning, or failed, with what to do. Nothing is installed, downloaded or changed.

Exit code: 0, also with warnings; 1 if something failed; 2 for wrong arguments.
"""
CHECKS = (
    Check(PYTHON, "packages", "litlab.commands.doctor.packages", "packages"),
    Check(PYTHON, "torch", "litlab.commands.doctor.torch_build", "torch_build"),
    Check(DEVICES, "GPU", "litlab.commands.doctor.gpus", "gpus"),
    Check(MACHINE, "machine", "litlab.commands.doctor.machine", "machine"),
    Check(DEVICES, "devices", "litlab.commands.doctor.devices", "devices", needs_torch=True, alone=True),
    Check(DATA, "experiments", "litlab.commands.doctor.team", "experiments", needs_torch=True),
    Check(DISK, "disk", "litlab.commands.doctor.disk", "disk"),
    Check(TOOLS, "compiler", "litlab.commands.doctor.tools", "tools"),
    Check(PROCESSES, "processes", "litlab.commands.doctor.processes", "processes", needs_torch=True),
    Check(ENVIRONMENT, "environment", "litlab.commands.doctor.environment", "environment"),
)
COLOURS = {OK: "32", NOTE: "2", WARNING: "33", FAILED: "1;31"}  # of terminals
WIDEST = 120  # columns
NAMES = 17  # columns of the names, with a space


def main(arguments: list[str]) -> int:
    """Run the command ``doctor``.

    Returns:
        The exit code: 0; 1 if something failed; 2 for wrong arguments; 130 after Ctrl-C.
    """
    return answer(_doctor, arguments)


def _doctor(arguments: list[str]) -> int:
    options = Options("doctor", DESCRIPTION)
    options.add_argument("--json", action="store_true", help="print all facts as JSON (docs/doctor.md)")
    chosen = options.parse_args(arguments)
    start = time.monotonic()
    try:
        lines = run_checks(CHECKS, _notice)
    finally:
        _notice([])  # after Ctrl-C some are still waiting
    lines.sort(key=lambda line: GROUPS.index(line.group))
    seconds, failed = time.monotonic() - start, any(line.status == FAILED for line in lines)
    if chosen.json:
        print(json.dumps({"ok": not failed, "seconds": round(seconds, 1), "lines": list(map(asdict, lines))}, indent=2))
    else:
        width = min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(table(lines, width, coloured))
        print(f"\n{summary(lines).capitalize()} ({seconds:.0f} s)")
    return int(failed)


def _notice(waiting: list[str]) -> None:
    """Show what is being checked, on terminals only."""
    if sys.stderr.isatty():
        room = shutil.get_terminal_size().columns - 1
        text = f"Checking {', '.join(waiting)} ..."[:room] if waiting else ""
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


def table(lines: list[Line], width: int, coloured: bool = False) -> str:
    """Return the lines under their headings, as plain text.

    Args:
        lines: The lines, in the order of their groups.
        width: Columns to fit into.
        coloured: Whether the statuses are coloured.
    """
    shown, indent = [], " " * (2 + 9 + NAMES)
    for group, members in groupby(lines, attrgetter("group")):
        shown += ["", group] if shown else [group]
        for line in members:
            word = f"{line.status.upper() if line.status == FAILED else line.status:9}"
            if coloured:
                word = f"\x1b[{COLOURS[line.status]}m{word}\x1b[0m"
            rows = _wrapped(line.what, width - len(indent))
            if line.remedy:
                rows += _wrapped(f"-> {line.remedy}", width - len(indent))
            beside = rows.pop(0) if len(line.name) < NAMES else ""
            shown += [f"  {word}{line.name:{NAMES}}{beside}".rstrip(), *(indent + row for row in rows)]
    return "\n".join(shown)


def _wrapped(text: str, width: int) -> list[str]:
    """Fold a text between words: paths and commands stay whole, to be copied."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def summary(lines: list[Line]) -> str:
    """Return how many lines failed or warn, in words."""
    failed, warnings = (sum(line.status == status for line in lines) for status in (FAILED, WARNING))
    return f"{failed or 'nothing'} failed, {warnings or 'no'} warning{'' if warnings == 1 else 's'}"
