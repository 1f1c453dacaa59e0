"""What a check says: lines of the table."""

from dataclasses import dataclass, field
from typing import Any

from litlab.errors import UserError, first_line

OK, NOTE, WARNING, FAILED = "ok", "note", "warning", "failed"  # a note: optional, or it can't be checked
PYTHON, DEVICES, MACHINE, DISK, DATA = "Python", "Devices", "Machine", "Disk", "Data"
TOOLS, PROCESSES, ENVIRONMENT, EXTRAS = "Tools", "Processes", "Environment", "Extras"
GROUPS = (PYTHON, DEVICES, MACHINE, DISK, DATA, TOOLS, PROCESSES, ENVIRONMENT, EXTRAS)  # in the order of the table
GIB = 2**30
TORCH = "torch"  # the line that says whether torch can be imported


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        group: Its heading, one of `GROUPS`.
        name: What was looked at.
        status: ok, note, warning or failed.
        what: What was found.
        remedy: What to do about it; empty where there is nothing to do.
        facts: What was found, for programs: the keys and their units stay the same.
    """

    group: str
    name: str
    status: str
    what: str
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def described(error: BaseException) -> str:
    """Return the kind of an exception and the first line of what it says; a `UserError` speaks for itself."""
    return first_line(error) if isinstance(error, UserError) else f"{type(error).__name__}: {first_line(error)}"


def gib(size: float) -> float:
    """Return a number of bytes in GiB, as precise as it is read."""
    return round(size / GIB, 1)
