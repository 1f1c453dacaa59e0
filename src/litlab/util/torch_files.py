"""Files of torch, read without executing anything in them."""

import importlib
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from litlab.errors import UserError

# Whose state is made of classes that torch.load accepts once the module is imported.
QUANTISED = "torchao.optim"


def read_torch_file(path: str | Path, map_location: Any = "cpu", mmap: bool | None = None) -> Any:
    """Read a file that torch.save wrote, with ``weights_only=True``.

    The quantised state of torchao's optimizers is read too: where a file holds some, ``torchao.optim`` is imported.

    Args:
        path: The file.
        map_location: As of torch.load.
        mmap: Whether to map tensors, instead of reading them at once.

    Raises:
        UserError: If it holds such state, and torchao is not installed.
    """
    try:
        return torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except pickle.UnpicklingError:
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        if not unknown or not all(name.startswith(f"{QUANTISED}.") for name in unknown):
            raise
    try:
        importlib.import_module(QUANTISED)
    except ModuleNotFoundError as error:
        raise UserError(
            f"checkpoint {path}: it holds the state of an optimizer of torchao, which is not installed; "
            "pip install '.[torchao]'"
        ) from error
    return torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)


def epoch_of(path: str | Path) -> int | None:
    """Return the epoch, from 0, in which a checkpoint was written; None for a remote or sharded one."""
    if not Path(path).is_file():
        return None
    # Mapped, not read: the file may hold gigabytes, and the number is in its first kilobytes.
    return read_torch_file(path, mmap=True)["epoch"]


def stored_parts(tensor: Tensor) -> list[Tensor]:
    """Return what is written of a tensor: itself, or the tensors that one of a class such as torchao's is made of."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    return [part for name in tensor.__tensor_flatten__()[0] for part in stored_parts(getattr(tensor, name))]
