"""Checks that do not come to their end, and one that does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from litlab.commands.doctor.line import FAILED, MACHINE, NOTE, OK, PYTHON, TORCH, Line


def fine() -> Iterator[Line]:
    print("noise of a library")
    yield Line(MACHINE, "fine", OK, "fine", facts={"cores": 2})


def raises() -> Iterator[Line]:
    yield Line(MACHINE, "before", OK, "found before")
    raise ValueError("first line\nsecond line")


def lacks_a_package() -> Iterator[Line]:
    import there_is_no_such_package  # noqa: F401  # pyright: ignore[reportMissingImports]

    yield from ()


def hangs() -> Iterator[Line]:
    """Hang with a child of its own, which has to go, too."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("child").write_text(str(child.pid))
    yield Line(MACHINE, "before", OK, "found before")
    time.sleep(600)


def dies() -> Iterator[Line]:
    os.kill(os.getpid(), signal.SIGSEGV)
    yield from ()


def leaves() -> Iterator[Line]:
    print("a reason", file=sys.stderr)
    sys.stderr.flush()
    os._exit(3)
    yield from ()


def broken_torch() -> Iterator[Line]:
    yield Line(PYTHON, TORCH, FAILED, "can't be imported")


def needs_torch() -> Iterator[Line]:
    yield Line(MACHINE, "known without", NOTE, "known without torch")
    raise ImportError("libcudart")
