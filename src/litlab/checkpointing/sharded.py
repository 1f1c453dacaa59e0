"""Sharded checkpoints: a small file that names a folder beside it, in which each process has written its part.

The file is a checkpoint like any other, but its weights and optimizer states are empty tensors (on the meta device);
the numbers are in the folder, in the format of torch.distributed.checkpoint (DCP).
"""

import pickle
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from litlab.checkpointing.io import AtomicCheckpointIO, prepare_file, raise_if_full, read_checkpoint
from litlab.errors import UserError, first_line
from litlab.util.atomic import sync, write_whole

KEY = "shards"  # in the small file: folder, names of the optimizers' parameters, fused layers
PARTS = ("state_dict", "current_model_state", "optimizer_states")  # of a checkpoint, that have tensors in shards

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


class ShardedCheckpointIO(AtomicCheckpointIO):
    """Let each process write its part of a checkpoint into a folder, then name the folder in the checkpoint's file.

    The file is replaced once everything is on the disk: a checkpoint is complete, or there is none of its name. In the
    background DCP writes a copy in host memory; the next save, or `wait`, waits for it and raises what went wrong.
    """

    def __init__(self) -> None:
        self._group: Any = None  # its own, so that training and saving don't mix their messages
        self._saving: Future[Any] | None = None
        self._folder = Path()  # that is written
        self._outdated: list[str | Path] = []  # files to be removed once that is complete

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
        small, tensors = divide(checkpoint, name[0], storage_options["parameters"])
        self._folder = path.with_name(name[0])
        options: dict[str, Any] = {
            "storage_writer": ShardWriter(self._folder, path, small),
            "planner": DefaultSavePlanner(dedup_save_to_lowest_rank=True),  # buffers of the processes may differ
            "process_group": self._group,
        }
        if storage_options["asynchronous"]:
            self._saving = dcp.async_save(tensors, **options)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self._complete(lambda: dcp.save(tensors, **options))

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
        fill(Path(path), checkpoint, "" if optimizers else "state_dict.", mine.get)
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

    def teardown(self) -> None:
        """Wait; where an error ends the run already, another one is only printed."""
        try:
            self.wait()
        except Exception as error:
            if sys.exception() is None or sys.exception() is error:
                raise
            print(f"warning: {first_line(error)}", file=sys.stderr)

    def _complete(self, save: Callable[[], Any]) -> None:
        try:
            save()
        except CheckpointException as error:
            if dist.get_rank() == 0:
                shutil.rmtree(self._folder, ignore_errors=True)
            cause = find_cause(error)
            raise cause from (error if cause is not error else None)


class ShardWriter(FileSystemWriter):
    """DCP's writer, which names its folder in the small file once all parts are complete.

    Args:
        folder: The new folder.
        file: The small file.
        content: The checkpoint for it.
    """

    def __init__(self, folder: Path, file: Path, content: dict[str, Any]) -> None:
        super().__init__(folder, thread_count=1)
        self.folder, self.file, self.content = folder, file, content

    def storage_meta(self) -> None:
        """Return nothing: it would be the absolute path."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            tensors = [planner.resolve_data(item) for item in plan.items]
            raise_if_full(error, self.file, tensors)
            raise

    def finish(self, metadata: Metadata, results: Any) -> None:
        """Write the metadata, then the file; the first process calls this, once all have written their parts."""
        super().finish(metadata, results)
        for name in {result.storage_data.relative_path for part in results for result in part}:
            if not (self.folder / name).is_file():
                raise UserError(
                    f"checkpoint.dirpath: {self.folder / name} was written on another machine; give a shared folder"
                )
        sync(self.folder)
        write_whole(self.file, lambda stream: torch.save(self.content, stream))
        remove_shards(self.file, self.folder.name)


def remove_shards(path: Path, kept: str = "") -> None:
    """Remove the shards of a checkpoint file, also what a killed save has left of them; links are left alone.

    Args:
        path: The file.
        kept: Name of a folder that stays.
    """
    for folder in path.parent.glob(f"{path.name}.shards-*"):
        if folder.name != kept and folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)


# Tensors


def divide(checkpoint: dict[str, Any], folder: str, parameters: list[list[str]]) -> tuple[dict[str, Any], Any]:
    """Return a checkpoint with empty tensors, and what was in them, by name. The given one stays as it is."""
    copies = {part: apply_to_collection(checkpoint[part], Tensor, _keep) for part in PARTS if part in checkpoint}
    small = {**checkpoint, **copies}
    tensors: dict[str, Tensor] = {}
    fused: dict[str, int] = {}
    for owner, key, name in list(_places(small)):
        tensor = owner[key].detach()
        owner[key] = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        fused[name] = _count_fused(tensor)
        for number, piece in enumerate(_pieces(tensor, fused[name])):
            tensors[f"{name}.{number}"] = piece
    small[KEY] = {"folder": folder, "parameters": parameters, "fused": fused}
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
    shards = checkpoint.pop(KEY, None)
    if shards is None:
        return
    try:
        folder = path.with_name(Path(shards["folder"]).name)
        state: dict[str, Tensor] = {}
        rooms: list[tuple[Tensor, list[Tensor]]] = []
        for owner, key, name in list(_places(checkpoint)):
            if not name.startswith(only):
                continue
            fused = shards["fused"][name]
            owner[key] = _make_room(owner[key], like(_parameter(name, key, shards["parameters"])), fused)
            pieces = _pieces(owner[key], fused)
            rooms.append((owner[key], pieces))
            state |= {f"{name}.{number}": piece for number, piece in enumerate(pieces)}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*torch.distributed is disabled.*")  # each process reads for itself
            dcp.load(state, storage_reader=ShardReader(folder), no_dist=True)
        for room, pieces in rooms:
            if isinstance(room, DTensor) and len(pieces) > 1:  # of a tensor in host memory they are no views
                room.to_local().copy_(torch.cat([piece.to_local() for piece in pieces]))  # pyright: ignore[reportAttributeAccessIssue]
    except (Exception, CheckpointException) as error:  # they depend on what the bytes say
        line = first_line(find_cause(error)).rstrip(".")
        raise UserError(f"checkpoint {path}: its shards can't be read ({line}); use another one") from error


class ShardReader(FileSystemReader):
    """DCP's reader, which executes nothing: its own (torch 2.15) unpickles whatever the metadata is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with (folder / ".metadata").open("rb") as stream:
            metadata = MetadataUnpickler(stream).load()
        names = {info.relative_path for info in metadata.storage_data.values()}
        if outside := [name for name in names if Path(name).name != name]:
            raise ValueError(f".metadata names {outside[0]}, which is not beside it")
        self.metadata = metadata

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.metadata


class MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        kind = getattr(torch, global_name, None) if module_name == "torch" else None
        if global_name in ALLOWED.get(module_name, ()) or isinstance(kind, torch.dtype):
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f".metadata names {module_name}.{global_name}, which is no part of a checkpoint")


def find_cause(error: BaseException) -> BaseException:
    """Return what failed in one of the processes, a `UserError` first."""
    failures = error.failures if isinstance(error, CheckpointException) else {}
    causes = [cause for cause, _ in failures.values()]
    return next((cause for cause in causes if isinstance(cause, UserError)), [*causes, error][0])


def _places(checkpoint: dict[str, Any]) -> Iterator[tuple[Any, Any, str]]:
    """Yield where a checkpoint has tensors that are in shards: a dictionary, the key in it, the tensor's name."""
    for part in PARTS:
        yield from _walk(checkpoint.get(part), part)


def _walk(owner: Any, name: str) -> Iterator[tuple[Any, Any, str]]:
    items = owner.items() if isinstance(owner, dict) else enumerate(owner if isinstance(owner, list) else [])
    for key, value in items:
        if isinstance(value, DTensor) or (isinstance(value, Tensor) and value.ndim > 0):
            yield owner, key, f"{name}.{key}"
        else:
            yield from _walk(value, f"{name}.{key}")


def _parameter(name: str, key: Any, parameters: list[list[str]]) -> str:
    """Return the name of the parameter that a tensor belongs to: ``optimizer_states.0.state.3.exp_avg``."""
    part, _, rest = name.partition(".")
    if part != "optimizer_states":
        return rest
    optimizer, _, number = rest.removesuffix(f".{key}").split(".")
    return parameters[int(optimizer)][int(number)]


def _make_room(empty: Tensor, like: Tensor | None, fused: int) -> Tensor:
    """Return an empty tensor in memory, in parts as another one if that is divided as this one was."""
    if not isinstance(like, DTensor) or like.shape != empty.shape or _count_fused(like) != fused:
        return torch.empty_like(empty, device="cpu")
    return torch.empty_like(like.detach(), dtype=empty.dtype)  # in host memory, if that is there


# DCP (torch 2.15) takes the part of a DTensor for one block. That of a fused layer, such as attention's queries, keys
# and values, has rows from as many places as it has layers: each is written by itself. To go once no layer is fused.


def _count_fused(tensor: Tensor) -> int:
    place = tensor.placements[-1] if isinstance(tensor, DTensor) else None
    return place.split_factor if isinstance(place, _StridedShard) else 1


def _pieces(tensor: Tensor, count: int) -> list[Tensor]:
    """Return views of the layers that a tensor holds one below the other."""
    if count == 1:
        return [tensor]
    shape = torch.Size([tensor.shape[0] // count, *tensor.shape[1:]])
    if not isinstance(tensor, DTensor):
        return list(tensor.unflatten(0, (count, -1)).unbind())
    places = [*tensor.placements[:-1], Shard(0)]
    make = partial(
        DTensor.from_local, device_mesh=tensor.device_mesh, placements=places, shape=shape, stride=tensor.stride()
    )
    return [make(local) for local in tensor.to_local().unflatten(0, (count, -1)).unbind()]


def _keep(tensor: Tensor) -> Tensor:
    return tensor
