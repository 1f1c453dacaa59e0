"""Reading checkpoint files."""

import pickle
from pathlib import Path
from typing import Any

import torch

from project.errors import UserError, one_line


def load_checkpoint(path: str) -> dict[str, Any]:
    """Reads a checkpoint file without executing anything in it.

    Args:
        path: A local file. Tensors are mapped, not read, until they are used.

    Raises:
        UserError: If there is no such file, it is remote, damaged, or needs more than ``weights_only=True``.
    """
    if "://" in path:
        raise UserError(f"--ckpt_path {path}: remote checkpoints are not loaded: download it and give the file.")
    if not Path(path).is_file():
        raise UserError(f"--ckpt_path {path}: no such file.")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise UserError(
            f"--ckpt_path {path} is damaged or no checkpoint of plain weights: {one_line(error)}"
        ) from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise UserError(f"--ckpt_path {path} is no Lightning checkpoint: it has no state_dict.")
    return checkpoint
