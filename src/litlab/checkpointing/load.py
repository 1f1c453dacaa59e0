"""Reading checkpoint files."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from litlab.errors import UserError, first_line


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
    if not os.access(path, os.R_OK):
        raise UserError(f"--ckpt_path {path} can't be read: Permission denied.")
    if found := damage(path):
        raise UserError(f"--ckpt_path {path} is damaged or no checkpoint: {found}: use another checkpoint.")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise UserError(f"--ckpt_path {path} holds more than plain weights and settings: it is not loaded.") from error
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        raise UserError(f"--ckpt_path {path} is damaged or no checkpoint: {first_line(error)}.") from error
    for name, kind in {"state_dict": dict, "pytorch-lightning_version": str}.items():
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(name), kind):
            raise UserError(f"--ckpt_path {path} is not a Lightning checkpoint: it has no {name}.")
    return checkpoint


def check_finite(model: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Refuses weights that a model can only answer NaN with.

    Args:
        model: Tells parameters, which must be finite, from buffers, which may hold infinity (as masks do) but no NaN.
        checkpoint: The checkpoint.

    Raises:
        UserError: If there are such weights.
    """
    parameters = {name for name, _ in model.named_parameters()}
    wrong = [
        name
        for name, tensor in checkpoint["state_dict"].items()
        if isinstance(tensor, Tensor) and (~tensor.isfinite() if name in parameters else tensor.isnan()).any()
    ]
    if wrong:
        more = f" and {len(wrong) - 1} more tensors" if len(wrong) > 1 else ""
        raise UserError(f"the checkpoint holds NaN or infinity in {wrong[0]}{more}: take an earlier one.")


def damage(path: str | Path) -> str | None:
    """What is wrong with the bytes of a checkpoint file; None where every checksum of its archive holds.

    torch.save writes a checksum (CRC-32) of each part, which torch.load does not look at: flipped bits load as weights.

    Args:
        path: A local file.
    """
    if Path(path).stat().st_size == 0:
        return "it is empty"
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        torch._C.PyTorchFileReader(str(path))  # stricter than zipfile about the directory; it reads nothing else
    except Exception as error:
        return first_line(error).rstrip(".")
    return broken and f"its part {broken} does not match its checksum"
