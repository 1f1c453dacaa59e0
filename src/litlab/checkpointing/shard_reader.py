"""Read the folder in which each process has written its part of a checkpoint, in the format of
torch.distributed.checkpoint (DCP).

DCP's own reader (torch 2.15) executes what is in the metadata, and checks nothing.
"""

# What torch documents of DCP is in no __all__:
# pyright: reportPrivateImportUsage=false

import io
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.tensor import DTensor

from litlab.errors import UserError, first_line
from litlab.util.checksums import check_records, compute_checksum

# The keys of a checkpoint whose tensors are in the folder
TENSOR_KEYS = ("state_dict", "current_model_state", "optimizer_states")

# All that DCP's metadata is made of, besides torch's types of numbers.
ALLOWED = (
    "torch.Size",
    "torch.serialization._get_layout",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
)


def fill(
    path: Path,
    shards: tuple[str, int],
    checkpoint: dict[str, Any],
    keys: Sequence[str] = TENSOR_KEYS,
    local_tensors: Mapping[str, Any] = {},
) -> None:
    """Put the numbers of the shards into a checkpoint that was read from a small file.

    Args:
        path: The small file.
        shards: Name of the folder beside it, and the checksum of the index in it.
        checkpoint: What was read from it; changed in place.
        keys: Those of the checkpoint to fill.
        local_tensors: Tensors of a model by their names, and by the number of an optimizer's state.
            Of what belongs to a DTensor, this process reads its part only.

    Raises:
        UserError: If the shards can't be read. Nothing in them is executed.
    """
    tensors: dict[str, Tensor] = {}

    def make(name: str, empty: Tensor) -> Tensor:
        # A name ends with that of a weight, or with the number of a parameter and what the
        # optimizer keeps of it
        key = name.partition(".")[2]
        like = local_tensors.get(key, local_tensors.get(key.rpartition(".")[0]))
        if isinstance(like, DTensor) and like.shape == empty.shape:
            # A DTensor of the same layout: DCP reads what this process has of it
            tensors[name] = torch.empty_like(like, dtype=empty.dtype)
        else:
            tensors[name] = torch.empty_like(empty, device="cpu")
        return tensors[name]

    try:
        name, checksum = shards
        # The name alone: it may not lead out of the checkpoint's folder
        reader = open_shards(path.with_name(Path(name).name), checksum)
        checkpoint |= {
            key: map_tensors(make, checkpoint[key], key) for key in keys if key in checkpoint
        }
        # DCP warns that each process reads for itself
        with warnings.catch_warnings(action="ignore"):
            dcp.load(tensors, storage_reader=reader, no_dist=True)
    except (Exception, dcp.CheckpointException) as error:  # of many kinds, as the bytes decide
        line = first_line(find_cause(error)).rstrip(".")
        advice = "use another one, as --resume does once this one is moved away"
        raise UserError(
            f"checkpoint {path}: its shards can't be read ({line}); {advice}"
        ) from error


def map_tensors(function: Callable[..., Any], value: Any, name: str) -> Any:
    """Return nested dictionaries and lists with what a function returns for each tensor and its
    name.
    """
    if isinstance(value, Tensor):
        return function(name, value)
    if isinstance(value, dict):
        return {key: map_tensors(function, inner, f"{name}.{key}") for key, inner in value.items()}
    if isinstance(value, list):
        return [
            map_tensors(function, inner, f"{name}.{index}") for index, inner in enumerate(value)
        ]
    return value


def open_shards(folder: Path, checksum: int) -> dcp.FileSystemReader:
    """Return DCP's reader of a folder, whose metadata is read without executing what is in it.

    Raises:
        ValueError: If the metadata is damaged, or a file that it names is cut off or elsewhere.
    """
    if compute_checksum(folder / ".metadata") != checksum:
        raise ValueError(".metadata is damaged")
    with (folder / ".metadata").open("rb") as stream:
        metadata = MetadataUnpickler(stream).load()
    # What the files hold is checked where it is read
    for info in metadata.storage_data.values():
        if Path(info.relative_path).name != info.relative_path:
            raise ValueError(f".metadata names {info.relative_path}, which is not beside it")
        if (folder / info.relative_path).stat().st_size < info.offset + info.length:
            raise ValueError(f"{info.relative_path} is cut off")
    reader = ShardReader(folder)
    reader.read_metadata = lambda *_, **__: metadata
    return reader


class ShardReader(dcp.FileSystemReader):
    """DCP's reader, which checks what it reads."""

    def read_data(self, plan: Any, planner: Any) -> Any:
        for index in {item.storage_index for item in plan.items}:
            info = self.storage_data[index]
            # Each tensor is a file of torch.save within the process's, whose CRCs torch skips
            with Path(self.path, info.relative_path).open("rb") as stream:
                stream.seek(info.offset)
                check_records(io.BytesIO(stream.read(info.length)))
        return super().read_data(plan, planner)


class MetadataUnpickler(pickle.Unpickler):
    """Unpickle the metadata of a checkpoint; any other class in it is an error."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        # By name, before anything is imported: an import runs code, too
        name = f"{module_name}.{global_name}"
        if name in ALLOWED or (
            module_name == "torch" and isinstance(getattr(torch, global_name, None), torch.dtype)
        ):
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f".metadata names {name}, which is no part of a checkpoint")


def find_cause(error: BaseException) -> BaseException:
    """Return what failed in one of the processes, a `UserError` first."""
    # DCP collects failures by rank, each with its traceback
    causes = [cause for cause, _ in getattr(error, "failures", {}).values()] or [error]
    return min(causes, key=lambda cause: not isinstance(cause, UserError))
