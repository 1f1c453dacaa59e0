"""The tensors of sharded checkpoints: taken out of a checkpoint to be written as shards, and put into it again."""

import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.tensor import DTensor

from litlab.checkpointing.planners import LoadPlanner
from litlab.checkpointing.shards import METADATA, shards_of
from litlab.errors import UserError, first_line
from litlab.util.chunks import Chunks

STATES = ("state_dict", "current_model_state")  # of weights: where an average is saved, it is the first one

# All that DCP's metadata is made of. Torch's classes for numbers' types are attributes of torch.
ALLOWED = {
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "_MEM_FORMAT_ENCODING", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "TensorProperties",
        "TensorStorageMetadata",
    },
}  # fmt: skip


def places(checkpoint: dict[str, Any], parameters: list[list[str]]) -> Iterator[tuple[dict[Any, Any], Any, str]]:
    """Yield where a checkpoint has tensors of weights and optimizers: a dictionary, the key in it, the tensor's name.

    Args:
        checkpoint: The checkpoint.
        parameters: As in `Shards`.
    """
    for state in STATES:
        weights = checkpoint.get(state, {})
        yield from ((weights, name, f"{state}.{name}") for name, value in weights.items() if _has_numbers(value))
    for optimizer, saved in enumerate(checkpoint.get("optimizer_states", [])):
        for number, state in saved["state"].items():
            owner = f"optimizer_states.{optimizer}.{parameters[optimizer][number]}"
            yield from ((state, name, f"{owner}.{name}") for name, value in state.items() if _has_numbers(value))


def divide(checkpoint: dict[str, Any], parameters: list[list[str]]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a checkpoint with empty tensors, and what was in them, by name. The given one stays as it is.

    Args:
        checkpoint: The checkpoint, with parts of tensors.
        parameters: As in `Shards`.
    """
    small = {**checkpoint, **{state: dict(checkpoint[state]) for state in STATES if state in checkpoint}}
    if "optimizer_states" in checkpoint:
        small["optimizer_states"] = [
            {**saved, "state": {number: dict(state) for number, state in saved["state"].items()}}
            for saved in checkpoint["optimizer_states"]
        ]
    tensors: dict[str, Tensor] = {}
    for owner, key, name in list(places(small, parameters)):
        tensors[name] = owner[key]
        owner[key] = torch.empty(tensors[name].shape, dtype=tensors[name].dtype, device="meta")
    return small, tensors


def fill(
    path: Path,
    checkpoint: dict[str, Any],
    only: str = "",
    like: Callable[[str], Tensor | None] = lambda name: None,
) -> None:
    """Put the numbers of the shards into a checkpoint that was read from a small file; a whole one stays as it is.

    Args:
        path: The small file.
        checkpoint: What was read from it; changed in place.
        only: How the names of tensors to read begin: ``state_dict.`` for weights.
        like: Returns for the name of a parameter the model's own. Of what belongs to a DTensor, this process reads its
            part only, of others everything.

    Raises:
        UserError: If the shards can't be read. Nothing in them is executed.
    """
    shards = shards_of(path)
    if shards is None:
        return
    folder = path.with_name(shards.folder)
    try:
        found = _rooms(checkpoint, shards.parameters, only, like)
        reader = _Reader(folder, _read_metadata(folder / METADATA), set(shards.files))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*torch.distributed is disabled.*")  # each process reads for itself
            load(found, storage_reader=reader, planner=LoadPlanner(), no_dist=True)
    except (Exception, CheckpointException) as error:  # they depend on what the bytes say
        line = first_line(_first_failure(error)).rstrip(".")
        raise UserError(f"checkpoint {path}: its shards in {folder.name} can't be read ({line}).") from error


def _rooms(
    checkpoint: dict[str, Any], parameters: list[list[str]], only: str, like: Callable[[str], Tensor | None]
) -> dict[str, Any]:
    """Replace the empty tensors of a checkpoint by some in memory, and return their `Chunks` by their names."""
    found: dict[str, Any] = {}
    for owner, key, name in list(places(checkpoint, parameters)):
        if not owner[key].is_meta or not name.startswith(only):
            continue
        kind, _, parameter = name.partition(".")
        if kind not in STATES:
            parameter = parameter.partition(".")[2].removesuffix(f".{key}")
        owner[key] = _room(owner[key], like(parameter))
        found[name] = Chunks(owner[key])
    return found


def _has_numbers(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.ndim > 0 or isinstance(value, DTensor))


def _room(empty: Tensor, like: Tensor | None) -> Tensor:
    """Return an empty tensor in memory, in parts as another one if that has its shape."""
    if not isinstance(like, DTensor) or like.shape != empty.shape:
        return torch.empty_like(empty, device="cpu")
    return torch.empty_like(like.detach(), dtype=empty.dtype)  # in host memory, if that is there


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        kind = getattr(torch, global_name, None) if module_name == "torch" else None
        if global_name in ALLOWED.get(module_name, ()) or isinstance(kind, torch.dtype):
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"{METADATA} names {module_name}.{global_name}, which is no part of a checkpoint")


def _read_metadata(path: Path) -> Metadata:
    """Read DCP's metadata, which its own reader (torch 2.15) would unpickle, and so execute, whatever is in it."""
    with path.open("rb") as stream:
        metadata = _MetadataUnpickler(stream).load()
    if not isinstance(metadata, Metadata):
        raise pickle.UnpicklingError(f"{METADATA} holds a {type(metadata).__name__}")
    return metadata


class _Reader(FileSystemReader):
    """Read the files of a folder, and no others, whatever the metadata says; tensors with ``weights_only=True``."""

    def __init__(self, folder: Path, metadata: Metadata, files: set[str]) -> None:
        super().__init__(folder)
        self.metadata = metadata
        places: Any = metadata.storage_data
        if outside := {place.relative_path for place in places.values()} - files:
            raise ValueError(f"{METADATA} names {min(outside)}, which has no checksum")

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.metadata


def _first_failure(error: BaseException) -> BaseException:
    failures = error.failures if isinstance(error, CheckpointException) else {}
    return next(iter(failures.values()))[0] if failures else error
