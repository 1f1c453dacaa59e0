"""Which rank a run of several processes has lost: the one message about it, and the run's status."""

import contextlib
import os
import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from torch.distributed import DistError  # pyright: ignore[reportPrivateImportUsage]

from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_json, write_json
from litlab.runs.masking import mask_text
from litlab.runs.provenance import now

LAST_LINES = 12  # of a traceback that are shown
PRINTED = "_printed_by_first_rank"  # attribute of an exception


@dataclass
class Loss:
    """Why a run of several processes ends.

    Args:
        what: Which rank is lost, and how.
        lines: Its last lines.
        code: Exit code of the others.
        certain: Whether it was surely the first one to fail.
    """

    what: str
    lines: str = ""
    code: int = 1
    certain: bool = True

    def print(self) -> None:
        """Print the message; nobody may be there to read it."""
        lines = "".join(f"\n  {line}" for line in self.lines.splitlines())
        text = f"error: {self.what}: the run is stopped.{' Its last lines:' if lines else ''}{lines}\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())

    def record(self, folder: Path, pid: int) -> None:
        """Write into a run's status that it failed, unless another process than that one has resumed it since.

        Args:
            folder: The folder of the run.
            pid: Of its first rank.
        """
        run = RunFolder(folder)
        reason = mask_text(self.what + (f": {self.lines.splitlines()[-1]}" if self.lines else ""))
        try:
            status = read_json(run.status)
            if status.get("pid") == pid and status.get("status") in ("running", "failed"):
                write_json(run.status, {**status, "status": "failed", "reason": reason, "ended": now()})
        except (UserError, OSError) as error:
            self.what += f" (which can't be written into the run's status: {error})"


def last_lines(exception: Exception) -> str:
    """Return what a process prints at the end, as an exception ends it."""
    if isinstance(exception, UserError):
        return f"error: {exception}"
    return "\n".join("".join(traceback.format_exception(exception)).splitlines()[-LAST_LINES:])


def leave_to_first_rank(exception: Exception) -> None:
    """Note that the first rank prints an exception of this one."""
    exception.__dict__[PRINTED] = True


def is_left_to_first_rank(exception: Exception) -> bool:
    """Return whether the first rank prints an exception of this one."""
    return exception.__dict__.get(PRINTED, False)


def is_lost_connection(exception: BaseException) -> bool:
    """Return whether an exception is that of a collective whose ranks are not all there any more."""
    text = r"gloo|NCCL|process ?group|connection (was )?(closed|reset)|broken pipe"
    return isinstance(exception, DistError) or (
        isinstance(exception, RuntimeError) and re.search(text, str(exception), re.IGNORECASE) is not None
    )
