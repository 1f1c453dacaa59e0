"""Sharded checkpoints: a small file that names a folder beside it, in which each process has
written its part.

The file is a checkpoint like any other, but its weights and optimizer states are empty tensors (on
the meta device); the numbers are in the folder, in the format of torch.distributed.checkpoint
(DCP).
"""

# What torch documents of DCP is in no __all__:
# pyright: reportPrivateImportUsage=false

import io
import pickle
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from litlab.checkpointing.io import (
    SHARDS,
    AtomicCheckpointIO,
    fill_shards,
    prepare_file,
    raise_if_full,
    read_checkpoint,
    remove_shards,
)
from litlab.errors import UserError, first_line
from litlab.util.checksums import check_records, compute_checksum
from litlab.util.files import sync, write_atomically

# Of a checkpoint, whose tensors are in the folder
PARTS = ("state_dict", "current_model_state", "optimizer_states")

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


class ShardedCheckpointIO(AtomicCheckpointIO):
    """Let each process write its part of a checkpoint into a folder, then name the folder in the
    checkpoint's file.

    The file is replaced once everything is on the disk: a checkpoint is complete, or there is none
    of its name. In the background DCP writes a copy in host memory; the next save, or `wait`, waits
    for it and raises what went wrong.
    """

    def __init__(self) -> None:
        self._group: Any = None  # its own, so that training and saving don't mix their messages
        self._finish: Any = None  # a function that waits until what is being written is complete
        self._folder = Path()  # that is written
        self._outdated: list[str | Path] = []  # files to be removed once it is complete

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: The checkpoint; if sharded, every process calls this, with its parts of the
                tensors.
            path: The file.
            storage_options: None for a whole one; `ShardedStrategy` says whether to write a sharded
                one in the background.

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
        name = [f"{path.name}.shards-{checkpoint['global_step']}-{uuid4().hex[:8]}"]
        dist.broadcast_object_list(name, group=self._group)
        self._folder = path.with_name(name[0])

        tensors: dict[str, Tensor] = {}

        def take(name: str, tensor: Tensor) -> Tensor:
            tensors[name] = tensor.detach()
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

        empty = {
            part: map_tensors(take, checkpoint[part], part) for part in PARTS if part in checkpoint
        }
        small = {**checkpoint, **empty}
        write: Any = partial(
            dcp.async_save if storage_options else dcp.save,
            tensors,
            storage_writer=ShardWriter(self._folder, path, small),
            # Buffers of the processes may differ
            planner=dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True),
            process_group=self._group,
        )
        self._finish = write().result if storage_options else write
        if not storage_options:
            self.wait()

    def load_parts(
        self, path: str | Path, model: nn.Module, optimizers: list[Optimizer]
    ) -> dict[str, Any]:
        """Read a checkpoint, of a sharded one only the parts of the tensors that this process has
        of a model's.

        Args:
            path: The file.
            model: The model, sharded.
            optimizers: Those whose states are to be read, too.

        Raises:
            UserError: As `load_checkpoint`.
        """
        checkpoint = read_checkpoint(path, mmap=True)  # of a whole one each process takes its parts
        mine = model.state_dict()
        for place, optimizer in enumerate(optimizers):
            parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
            mine |= {
                f"{place}.state.{number}": parameter for number, parameter in enumerate(parameters)
            }
        return fill_shards(path, checkpoint, PARTS if optimizers else PARTS[:1], mine)

    def remove_checkpoint(self, path: str | Path) -> None:
        if self._finish is not None:
            self._outdated.append(path)
        else:
            super().remove_checkpoint(path)

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete; all processes call this.

        Raises:
            UserError: If there was no room for it.
        """
        finish, self._finish = self._finish, None
        try:
            if finish is not None:
                finish()
        except dcp.CheckpointException as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise find_cause(error) from None
        while self._outdated:
            super().remove_checkpoint(self._outdated.pop())

    teardown = wait


class ShardWriter(dcp.FileSystemWriter):
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
        """Write the metadata, then the file; the first process calls this, once all have written
        their parts.
        """
        super().finish(metadata, results)
        for part in {result.storage_data.relative_path for result in chain(*results)}:
            if not (self.folder / part).is_file():
                raise UserError(
                    f"checkpoint.dirpath: {part} was written on another machine; give "
                    "a shared folder"
                )
        sync(self.folder)
        self.content[SHARDS] = self.folder.name, compute_checksum(self.folder / ".metadata")
        write_atomically(self.file, lambda stream: torch.save(self.content, stream))
        remove_shards(self.file, self.folder.name)


def fill(
    path: Path,
    checkpoint: dict[str, Any],
    parts: Sequence[str] = PARTS,
    mine: Mapping[str, Any] = {},
) -> None:
    """Put the numbers of the shards into a checkpoint that was read from a small file.

    Args:
        path: The small file.
        checkpoint: What was read from it; changed in place.
        parts: Those of the checkpoint to fill.
        mine: Tensors of a model by their names, and by the number of an optimizer's state. Of what
            belongs to a DTensor, this process reads its part only.

    Raises:
        UserError: If the shards can't be read. Nothing in them is executed.
    """
    tensors: dict[str, Tensor] = {}

    def make(name: str, empty: Tensor) -> Tensor:
        # Followed by a name, where an optimizer keeps several tensors of a parameter
        key = name.partition(".")[2]
        like = mine.get(key, mine.get(key.rpartition(".")[0]))
        if isinstance(like, DTensor) and like.shape == empty.shape:
            tensors[name] = torch.empty_like(like, dtype=empty.dtype)
        else:
            tensors[name] = torch.empty_like(empty, device="cpu")
        return tensors[name]

    try:
        name, checksum = checkpoint.pop(SHARDS)
        reader = open_shards(path.with_name(Path(name).name), checksum)
        checkpoint |= {
            part: map_tensors(make, checkpoint[part], part) for part in parts if part in checkpoint
        }
        with warnings.catch_warnings(action="ignore"):  # that each process reads for itself
            dcp.load(tensors, storage_reader=reader, no_dist=True)
    except (Exception, dcp.CheckpointException) as error:  # they depend on what the bytes say
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
            map_tensors(function, inner, f"{name}.{place}") for place, inner in enumerate(value)
        ]
    return value


def open_shards(folder: Path, checksum: int) -> dcp.FileSystemReader:
    """Return DCP's reader of a folder; its own way to read the metadata (torch 2.15) executes
    whatever is in it.
    """
    if compute_checksum(folder / ".metadata") != checksum:
        raise ValueError(".metadata is damaged")
    with (folder / ".metadata").open("rb") as stream:
        metadata = MetadataUnpickler(stream).load()
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
            with Path(self.path, info.relative_path).open("rb") as stream:
                stream.seek(info.offset)
                check_records(io.BytesIO(stream.read(info.length)))  # each tensor is a zip file
        return super().read_data(plan, planner)


class MetadataUnpickler(pickle.Unpickler):
    """Unpickle the metadata of a checkpoint; any other class in it is an error."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = f"{module_name}.{global_name}"
        if name in ALLOWED or (
            module_name == "torch" and isinstance(getattr(torch, global_name, None), torch.dtype)
        ):
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f".metadata names {name}, which is no part of a checkpoint")


def find_cause(error: BaseException) -> BaseException:
    """Return what failed in one of the processes, a `UserError` first."""
    causes = [cause for cause, _ in getattr(error, "failures", {}).values()] or [error]
    return min(causes, key=lambda cause: not isinstance(cause, UserError))
