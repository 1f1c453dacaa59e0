"""What a failure leaves for those who look for its cause: the traceback, and where it happened."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from litlab.errors import UserError
from litlab.runs.folder import ROOT, write_text
from litlab.runs.masking import mask_text
from litlab.util import team


@contextmanager
def saving_traceback() -> Iterator[None]:
    """Keep the traceback of what ends the block, and note on the exception where it is."""
    try:
        yield
    except Exception as error:
        save_traceback(error)
        raise


def save_traceback(error: Exception, file: Path = ROOT / "traceback.txt") -> None:
    """Keep the traceback of an exception, by default that of no run, and note on it where it is."""
    # A full disk is no reason to hide the exception itself, which then has no note
    with suppress(UserError):
        write_text(file, mask_text("".join(traceback.format_exception(error))))
        error.add_note(f"traceback in {file}")


def locate_failure(trainer: Trainer, error: BaseException) -> dict[str, Any]:
    """Return where a fit failed: epoch, step, batch, and the line, of the team's package if any
    is.
    """
    # Of the exception itself, not of one that it was raised from
    frames = traceback.extract_tb(error.__traceback__)
    folders = team.team_folders().values()
    # The last line of the team's own code is where people look first
    in_team = [frame for frame in frames if any(map(Path(frame.filename).is_relative_to, folders))]
    frame = (in_team or frames)[-1]
    return {
        "epoch": trainer.current_epoch,
        "step": trainer.global_step,
        "batch": trainer.fit_loop.batch_idx,
        # FILE:LINE from the working directory, which editors and terminals open
        "line": f"{os.path.relpath(frame.filename)}:{frame.lineno}",
    }
