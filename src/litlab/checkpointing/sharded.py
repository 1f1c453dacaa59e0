"""Sharded checkpoints: a small file that names a folder beside it, in which each process has
written its part.

The file is a checkpoint like any other, but its weights and optimizer states are empty tensors (on
the meta device); the numbers are in the folder, in the format of torch.distributed.checkpoint
(DCP).
"""

# What torch documents of DCP is in no __all__:
# pyright: reportPrivateImportUsage=false

import shutil
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
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
from litlab.checkpointing.shard_reader import TENSOR_KEYS, find_cause, map_tensors
from litlab.errors import UserError
from litlab.util.checksums import compute_checksum
from litlab.util.files import stage_file, sync


class ShardedCheckpointIO(AtomicCheckpointIO):
    """Let each process write its part of a checkpoint into a folder, then name the folder in the
    checkpoint's file.

    The file is replaced once everything is on the disk: a checkpoint is complete, or there is none
    of its name. In the background DCP writes a copy in host memory; the next save, or `wait`, waits
    for it and raises what went wrong.
    """

    def __init__(self) -> None:
        # Its own, so that training and saving don't mix their messages
        self._group: Any = None
        # A function that waits until what is being written is complete, and its folder
        self._finish: Any = None
        self._folder = Path()
        # Files to be removed once it is complete
        self._outdated: list[str | Path] = []

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
        # One at a time: of two saves in the background the later one might be complete first
        self.wait()
        if storage_options is None:
            super().save_checkpoint(checkpoint, path)
            return

        # A folder of a new name, the same in all processes
        path = prepare_file(path)
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        name = [f"{path.name}.shards-{checkpoint['global_step']}-{uuid4().hex[:8]}"]
        dist.broadcast_object_list(name, group=self._group)
        self._folder = path.with_name(name[0])

        # Tensors go into the folder, named by their place in the checkpoint; the file has empty
        # ones. They need not be copied: DCP writes or copies them before training goes on
        tensors: dict[str, Tensor] = {}

        def take(name: str, tensor: Tensor) -> Tensor:
            tensors[name] = tensor.detach()
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

        keys = [key for key in TENSOR_KEYS if key in checkpoint]
        empty = {key: map_tensors(take, checkpoint[key], key) for key in keys}
        small = {**checkpoint, **empty}

        # Every process writes its own tensors, and waits until all have
        write: Any = partial(
            dcp.async_save if storage_options else dcp.save,
            tensors,
            storage_writer=ShardWriter(self._folder, path, small),
            # Of what several have, such as buffers, the first one writes its own: they may differ
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
        # Of a whole one each process takes its parts: what it does not use is not read
        checkpoint = read_checkpoint(path, mmap=True)
        local_tensors = model.state_dict()
        # The state of an optimizer's parameter is divided like the parameter itself
        for index, optimizer in enumerate(optimizers):
            parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
            local_tensors |= {
                f"{index}.state.{number}": parameter for number, parameter in enumerate(parameters)
            }
        keys = TENSOR_KEYS if optimizers else TENSOR_KEYS[:1]
        return fill_shards(path, checkpoint, keys, local_tensors)

    def remove_checkpoint(self, path: str | Path) -> None:
        # The older one goes only once the newer one is complete
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
            # What is left of it would never be named by a file
            shutil.rmtree(self._folder, ignore_errors=True)
            raise find_cause(error) from None
        while self._outdated:
            super().remove_checkpoint(self._outdated.pop())

    teardown = wait


class ShardWriter(dcp.FileSystemWriter):
    """DCP's writer, which names its folder in the small file once all parts are complete."""

    def __init__(self, folder: Path, file: Path, content: dict[str, Any]) -> None:
        super().__init__(folder)
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
        # A folder that machines don't share has the parts of one of them
        for name in {result.storage_data.relative_path for result in chain(*results)}:
            if not (self.folder / name).is_file():
                raise UserError(
                    f"checkpoint.dirpath: {name} was written on another machine; give "
                    "a shared folder"
                )
        # From here on the new checkpoint is there, and the one that it replaces is not
        sync(self.folder)
        self.content[SHARDS] = self.folder.name, compute_checksum(self.folder / ".metadata")
        with stage_file(self.file) as temporary, temporary.open("wb") as stream:
            torch.save(self.content, stream)
        remove_shards(self.file, self.folder.name)
