"""Sharded checkpoints: a small file that names a folder beside it, in which each process has written its part.

The file is a checkpoint like any other, but its weights and optimizer states are empty tensors (on the meta device);
the numbers are in the folder, in the format of torch.distributed.checkpoint (DCP).
"""

import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from litlab.checkpointing.io import (
    SHARDS,
    AtomicCheckpointIO,
    prepare_file,
    raise_if_full,
    read_checkpoint,
    remove_shards,
)
from litlab.errors import UserError, first_line
from litlab.util.files import sync, write_atomically

PARTS = ("state_dict", "current_model_state", "optimizer_states")  # of a checkpoint, whose tensors are in the folder

# All that DCP's metadata is made of, besides torch's types of numbers.
ALLOWED = (
    "torch.Size", "torch.serialization._get_layout", "torch.distributed.checkpoint.filesystem._StorageInfo",
    *(
        f"torch.distributed.checkpoint.metadata.{name}"
        for name in ("_MEM_FORMAT_ENCODING", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "TensorProperties",
                     "TensorStorageMetadata")
    ),
)  # fmt: skip


class ShardedCheckpointIO(AtomicCheckpointIO):
    """Let each process write its part of a checkpoint into a folder, then name the folder in the checkpoint's file.

    The file is replaced once everything is on the disk: a checkpoint is complete, or there is none of its name. In the
    background DCP writes a copy in host memory; the next save, or `wait`, waits for it and raises what went wrong.
    """

    def __init__(self) -> None:
        self._group: Any = None  # its own, so that training and saving don't mix their messages
        self._saving: Future[Any] | None = None
        self._folder = Path()  # that is written
        self._outdated: list[str | Path] = []  # files to be removed once it is complete

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a whole checkpoint, or with the options that `ShardedStrategy` gives, a sharded one.

        Args:
            checkpoint: The checkpoint; if sharded, every process calls this, with its parts of the tensors.
            path: The file.
            storage_options: ``parameters``, the names of those of each optimizer, in the order that its state numbers
                them, and ``asynchronous``, whether to write in the background.

        Raises:
            UserError: If there is no room for it, or there was none for the one before.
        """
        self.wait()
        if storage_options is None:
            super().save_checkpoint(checkpoint, path)
            return
        path = prepare_file(path)
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        name = [f"{path.name}.shards-{checkpoint.get('global_step', 0)}-{uuid4().hex[:8]}"]
        dist.broadcast_object_list(name, group=self._group)
        self._folder = path.with_name(name[0])

        small, tensors = divide(checkpoint, self._folder.name, storage_options["parameters"])
        options: dict[str, Any] = {
            "storage_writer": ShardWriter(self._folder, path, small),
            "planner": DefaultSavePlanner(dedup_save_to_lowest_rank=True),  # buffers of the processes may differ
            "process_group": self._group,
        }
        if storage_options["asynchronous"]:
            self._saving = async_save(tensors, **options)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self._complete(lambda: save(tensors, **options))

    def load_parts(self, path: str | Path, model: nn.Module, optimizers: bool) -> dict[str, Any]:
        """Read a checkpoint, of a sharded one only the parts of the tensors that this process has of a model's.

        Args:
            path: The file.
            model: The model, sharded.
            optimizers: Whether to read the states of optimizers, too.

        Raises:
            UserError: As `load_checkpoint`.
        """
        self.wait()
        checkpoint = read_checkpoint(path, mmap=True)  # of a whole one each process takes its parts
        mine = {**dict(model.named_buffers()), **dict(model.named_parameters(remove_duplicate=False))}
        fill(Path(path), checkpoint, "" if optimizers else "state_dict.", mine)
        return checkpoint

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        self.wait()
        return super().load_checkpoint(path, map_location, weights_only)

    def remove_checkpoint(self, path: str | Path) -> None:
        if self._saving is not None:
            self._outdated.append(path)
        else:
            super().remove_checkpoint(path)

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete; all processes call this.

        Raises:
            UserError: If there was no room for it.
        """
        saving, self._saving = self._saving, None
        if saving is not None:
            self._complete(saving.result)
        while self._outdated:
            super().remove_checkpoint(self._outdated.pop())

    teardown = wait

    def _complete(self, finish: Callable[[], Any]) -> None:
        try:
            finish()
        except CheckpointException as error:
            if dist.get_rank() == 0:
                shutil.rmtree(self._folder, ignore_errors=True)
            raise find_cause(error) from None


class ShardWriter(FileSystemWriter):
    """DCP's writer, which names its folder in the small file once all parts are complete."""

    def __init__(self, folder: Path, file: Path, content: dict[str, Any]) -> None:
        super().__init__(folder, thread_count=1)
        self.folder, self.file, self.content = folder, file, content

    def storage_meta(self) -> None:
        """Return nothing: it would be the absolute path."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            raise_if_full(error, self.file)
            raise

    def finish(self, metadata: Any, results: Any) -> None:
        """Write the metadata, then the file; the first process calls this, once all have written their parts."""
        super().finish(metadata, results)
        for part in {info.relative_path for info in metadata.storage_data.values()}:
            if not (self.folder / part).is_file():
                raise UserError(f"checkpoint.dirpath: {part} was written on another machine; give a shared folder")
        sync(self.folder)
        write_atomically(self.file, lambda stream: torch.save(self.content, stream))
        remove_shards(self.file, self.folder.name)


def divide(checkpoint: dict[str, Any], folder: str, parameters: list[list[str]]) -> tuple[dict[str, Any], Any]:
    """Return a checkpoint with empty tensors, and what was in them, by name. The given one stays as it is."""
    copies = {
        part: apply_to_collection(checkpoint[part], Tensor, Tensor.detach) for part in PARTS if part in checkpoint
    }
    small = {**checkpoint, **copies}
    tensors: dict[str, Tensor] = {}
    fused: dict[str, int] = {}
    for owner, key, name in list(find_tensors(small)):
        fused[name] = count_fused(owner[key])
        tensors |= split_fused(name, owner[key], fused[name])
        owner[key] = torch.empty(owner[key].shape, dtype=owner[key].dtype, device="meta")
    small[SHARDS] = {"folder": folder, "parameters": parameters, "fused": fused}
    return small, tensors


def fill(path: Path, checkpoint: dict[str, Any], only: str = "", mine: dict[str, Tensor] | None = None) -> None:
    """Put the numbers of the shards into a checkpoint that was read from a small file; a whole one stays as it is.

    Args:
        path: The small file.
        checkpoint: What was read from it; changed in place.
        only: How the names of tensors to read begin: ``state_dict.`` for weights.
        mine: The model's parameters. Of what belongs to a DTensor, this process reads its part only.

    Raises:
        UserError: If the shards can't be read. Nothing in them is executed.
    """
    shards = checkpoint.pop(SHARDS, None)
    if shards is None:
        return
    tensors: dict[str, Tensor] = {}
    try:
        for owner, key, name in list(find_tensors(checkpoint)):
            if not name.startswith(only):
                continue
            like = (mine or {}).get(find_parameter(name, key, shards["parameters"]))
            fused = shards["fused"][name]
            if isinstance(like, DTensor) and like.shape == owner[key].shape and fused == count_fused(like) == 1:
                owner[key] = torch.empty_like(like.detach(), dtype=owner[key].dtype)
            else:
                owner[key] = torch.empty_like(owner[key], device="cpu")
            tensors |= split_fused(name, owner[key], fused)
        reader = open_shards(path.with_name(Path(shards["folder"]).name))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*torch.distributed is disabled.*")  # each process reads for itself
            load(tensors, storage_reader=reader, no_dist=True)
    except (Exception, CheckpointException) as error:  # they depend on what the bytes say
        line = first_line(find_cause(error)).rstrip(".")
        raise UserError(f"checkpoint {path}: its shards can't be read ({line}); use another one") from error


def open_shards(folder: Path) -> FileSystemReader:
    """Return DCP's reader of a folder; its own way to read the metadata (torch 2.15) executes whatever is in it."""
    with (folder / ".metadata").open("rb") as stream:
        metadata = MetadataUnpickler(stream).load()
    for info in metadata.storage_data.values():
        if Path(info.relative_path).name != info.relative_path:
            raise ValueError(f".metadata names {info.relative_path}, which is not beside it")
    reader = FileSystemReader(folder)
    reader.read_metadata = lambda *_, **__: metadata
    return reader


class MetadataUnpickler(pickle.Unpickler):
    """Unpickle the metadata of a checkpoint; any other class in it is an error."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = f"{module_name}.{global_name}"
        is_dtype = module_name == "torch" and isinstance(getattr(torch, global_name, None), torch.dtype)
        if name in ALLOWED or is_dtype:
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f".metadata names {name}, which is no part of a checkpoint")


def find_cause(error: BaseException) -> BaseException:
    """Return what failed in one of the processes, a `UserError` first."""
    failures = error.failures if isinstance(error, CheckpointException) else {}
    causes = [cause for cause, _ in failures.values()] or [error]
    return next((cause for cause in causes if isinstance(cause, UserError)), causes[0])


def find_tensors(owner: Any, name: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Yield where a checkpoint has tensors that are in shards: a dictionary, the key in it, the tensor's name."""
    items = owner.items() if isinstance(owner, dict) else enumerate(owner if isinstance(owner, list) else [])
    for key, value in items:
        path = f"{name}.{key}" if name else str(key)
        if not path.startswith(PARTS):
            continue
        if isinstance(value, DTensor) or (isinstance(value, Tensor) and value.ndim > 0):
            yield owner, key, path
        else:
            yield from find_tensors(value, path)


def find_parameter(name: str, key: Any, parameters: list[list[str]]) -> str:
    """Return the name of the parameter that a tensor belongs to: the fourth for ``optimizer_states.0.state.3.exp``."""
    part, _, rest = name.partition(".")
    if part != "optimizer_states":
        return rest
    optimizer, _, number = rest.removesuffix(f".{key}").split(".")
    return parameters[int(optimizer)][int(number)]


# DCP (torch 2.15) takes the part of a DTensor for one block. That of a fused layer, such as attention's queries, keys
# and values, has rows from as many places as it has layers: each is written by itself. To go once no layer is fused.


def count_fused(tensor: Tensor) -> int:
    """Return how many layers a tensor holds one below the other, of which each process has a part."""
    place: Any = tensor.placements[-1] if isinstance(tensor, DTensor) else None
    return int(place.split_factor) if isinstance(place, _StridedShard) else 1


def split_fused(name: str, tensor: Tensor, count: int) -> dict[str, Tensor]:
    """Return views of the layers that a tensor holds, by name."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    layers = local.unflatten(0, (count, -1)).unbind() if count > 1 else [tensor]
    if isinstance(tensor, DTensor) and count > 1:
        shape = torch.Size([tensor.shape[0] // count, *tensor.shape[1:]])
        places = [*tensor.placements[:-1], Shard(0)]
        layers = [
            DTensor.from_local(p, tensor.device_mesh, places, shape=shape, stride=tensor.stride()) for p in layers
        ]
    return {f"{name}.{number}": layer for number, layer in enumerate(layers)}
