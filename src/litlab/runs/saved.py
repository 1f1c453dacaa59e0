"""The checkpoint of a run, as `litlab.checkpointing.weights` wants it."""

import os
from pathlib import Path

from litlab.errors import UserError
from litlab.runs.find import find_run
from litlab.runs.folder import get_entry, read_json


def checkpoint_of(text: str) -> Path:
    """Return the checkpoint that a user means: a file, or a run's best one, its last where it has no best."""
    if os.path.isfile(text):
        return Path(text)
    run = find_run(text)
    name = get_entry(read_json(run.metrics), str, "best", "checkpoint") or "last.ckpt"
    path = run.checkpoints / Path(name).name
    if not path.is_file():
        raise UserError(f"{run.name}: there is no checkpoint {path}; give another one")
    return path
