"""Read checkpoint files: nothing in them is executed, and damage is found."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from litlab.checkpointing.shard_tensors import fill
from litlab.checkpointing.shards import find_missing, shards_of
from litlab.errors import UserError, first_line
from litlab.util.torch_files import read_torch_file


def load_checkpoint(path: str | Path, weights: bool = True) -> dict[str, Any]:
    """Read a checkpoint file without executing anything in it.

    Args:
        path: A local file. Tensors are mapped, not read, until they are used; those of a sharded checkpoint are read.
        weights: Whether to read the weights of a sharded checkpoint. The state of its optimizers is left out.

    Raises:
        UserError: If there is no such file, it is remote, damaged, or needs more than ``weights_only=True``.
    """
    if "://" in str(path):
        raise UserError(f"checkpoint {path}: it is remote; download it and give the local file.")
    if Path(path).is_dir():
        raise UserError(f"checkpoint {path}: it is a folder; give a file in it.")
    if not Path(path).is_file():
        raise UserError(f"checkpoint {path}: no such file.")
    if not os.access(path, os.R_OK):
        raise UserError(f"checkpoint {path}: it can't be read (Permission denied); make it readable.")
    if found := find_corruption(path):
        raise UserError(f"checkpoint {path}: it is damaged or not a checkpoint ({found}); use another one.")
    try:
        checkpoint = read_torch_file(path, mmap=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"checkpoint {path}: it holds more than weights and plain settings; use another one."
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        line = first_line(error).rstrip(".")
        raise UserError(f"checkpoint {path}: it is damaged or not a checkpoint ({line}); use another one.") from error
    for name, kind in {"state_dict": dict, "pytorch-lightning_version": str}.items():
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(name), kind):
            raise UserError(
                f"checkpoint {path}: it is not a Lightning checkpoint, as it has no {name}; use another one."
            )
    if weights:
        fill(Path(path), checkpoint, only="state_dict.")
    return checkpoint


def check_finite(model: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Refuse weights that make every output of a model NaN.

    Args:
        model: The model. Its parameters must be finite; buffers may hold infinity (as masks do) but no NaN.
        checkpoint: The checkpoint. Weights of shards that were not read are not looked at.

    Raises:
        UserError: If there are such weights.
    """
    parameters = {name for name, _ in model.named_parameters()}
    wrong = [
        name
        for name, tensor in checkpoint["state_dict"].items()
        if isinstance(tensor, Tensor)
        and not tensor.is_meta
        and (~tensor.isfinite() if name in parameters else tensor.isnan()).any()
    ]
    if wrong:
        more = f" and {len(wrong) - 1} more tensors" if len(wrong) > 1 else ""
        raise UserError(f"the checkpoint holds NaN or infinity in {wrong[0]}{more}; use an earlier one.")


def find_corruption(path: str | Path) -> str | None:
    """Return what is wrong with the bytes of a checkpoint, None where all checksums of its file and shards match.

    torch.save writes a checksum (CRC-32) of each part, which torch.load ignores: flipped bits are loaded as weights.

    Args:
        path: A local file.
    """
    if Path(path).stat().st_size == 0:
        return "it is empty"
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken:
            return f"its part {broken} does not match its checksum"
        shards = shards_of(Path(path))
        return shards and find_missing(Path(path), shards)
    except Exception as error:  # of zipfile or zlib; they depend on what the bytes say
        return first_line(error).rstrip(".")
