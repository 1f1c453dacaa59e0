"""Reading checkpoint files."""

import pickle
import zipfile
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
    if Path(path).is_dir():
        raise UserError(f"--ckpt_path {path} is a folder: give the file.")
    if not Path(path).is_file():
        raise UserError(f"--ckpt_path {path}: no such file.")
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch does not look at the archive's own checksums
        if broken:
            raise UserError(f"--ckpt_path {path} is damaged in {broken}: use another checkpoint.")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise UserError(f"--ckpt_path {path} holds more than plain weights and settings: it is not loaded.") from error
    except (zipfile.BadZipFile, RuntimeError, OSError, EOFError, ValueError) as error:
        raise UserError(f"--ckpt_path {path} is damaged or no checkpoint: {one_line(error)}.") from error
    for name, kind in {"state_dict": dict, "pytorch-lightning_version": str}.items():
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(name), kind):
            raise UserError(f"--ckpt_path {path} is no Lightning checkpoint: it has no {name}.")
    return checkpoint
