"""``python -m PACKAGE doctor``: what of this machine is fine, and what to do about the rest."""

from concurrent.futures import ThreadPoolExecutor

from litlab.commands.doctor.checks import (
    FAIL,
    Check,
    Line,
    check_compiler,
    check_devices,
    check_disk,
    check_memory,
    check_packages,
    check_python,
    check_shared_memory,
    check_torch,
)
from litlab.commands.doctor.processes import check_processes
from litlab.errors import first_line, printable
from litlab.util.imports import pausing_garbage_collection
from litlab.util.options import Options

DESCRIPTION = """\
Check this machine: Python, packages, torch, devices, compiler, memory, disk, and whether processes
can compute together. Nothing is installed, downloaded or changed.

Each line is ok, warn (runs work, but more slowly or without some features) or FAIL (something will
not run), and says what to do.

Exit code: 0, also with warnings; 1 if a check failed.
"""
INSTALL = "activate the environment of the project, or pip install -e ."

# By the name of the line: the check, and what to do where it raises an exception.
CHECKS: dict[str, tuple[Check, str]] = {
    "Python": (check_python, INSTALL),
    "packages": (check_packages, INSTALL),
    "torch": (
        check_torch,
        "pip install --force-reinstall torch torchvision, both from the same index",
    ),
    "devices": (check_devices, "install a torch that is built for them (pytorch.org/get-started)"),
    "compiler": (check_compiler, "install g++"),
    "memory": (check_memory, INSTALL),
    "/dev/shm": (check_shared_memory, "docker run --shm-size 8g, or --ipc host"),
    "disk": (check_disk, "make room, or work in another folder"),
    "processes": (check_processes, INSTALL),
}


def main(arguments: list[str]) -> int:
    Options("doctor", DESCRIPTION).parse_args(arguments)
    failed = False
    with pausing_garbage_collection(), ThreadPoolExecutor(1) as thread:
        processes = thread.submit(run_check, "processes")  # they import torch, too, meanwhile
        for name in CHECKS:
            lines = processes.result() if name == "processes" else run_check(name)
            for status, text in lines:
                print(f"{status:4} {name}: {printable(text)}", flush=True)
                failed = failed or status == FAIL
    return int(failed)


def run_check(name: str) -> list[Line]:
    check, remedy = CHECKS[name]
    lines: list[Line] = []
    try:
        for line in check():
            lines.append(line)  # what comes before an exception is kept
    except ModuleNotFoundError as error:
        lines.append((FAIL, f"{error}; {INSTALL}"))
    except Exception as error:  # such as of a broken library
        lines.append((FAIL, f"{type(error).__name__}: {first_line(error)}; {remedy}"))
    return lines
