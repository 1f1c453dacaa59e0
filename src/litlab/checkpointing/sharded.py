"""Write sharded checkpoints, in the background if wished."""

import io
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from litlab.checkpointing.io import AtomicCheckpointIO, no_room
from litlab.checkpointing.load import find_corruption
from litlab.checkpointing.planners import SavePlanner
from litlab.checkpointing.shard_tensors import divide, fill
from litlab.checkpointing.shard_writer import ShardWriter
from litlab.checkpointing.shards import (
    UNFINISHED,
    Shards,
    mark_replaced,
    mark_unfinished,
    remove_unnamed,
    small_file,
)
from litlab.errors import UserError, first_line
from litlab.util.chunks import Chunks
from litlab.util.files import sync, write_atomically
from litlab.util.torch_files import read_torch_file


class ShardedCheckpointIO(AtomicCheckpointIO):
    """Let each process write its part of a checkpoint into a folder, then name the folder in the checkpoint's file.

    The file is replaced once everything is on the disk. So a checkpoint is complete, or there is none of its name; what
    a killed save leaves is a folder that no file names, and the next save removes it.

    In the background a thread writes a copy in host memory, as DCP's ``async_save`` does (torch 2.15). A process would
    need the copy in shared memory, and a process group of its own; a thread shares the interpreter, but while it writes
    and sums up, the training has that. Two saves may be under way, as a validation often saves the best checkpoint and
    the last one; a third one, or `wait`, waits for the first and raises what went wrong with it.
    """

    def __init__(self) -> None:
        self._group: Any = None  # its own, so that training and saving don't mix their messages
        self._thread: ThreadPoolExecutor | None = None
        self._saving: list[tuple[Future[None], list[str | Path]]] = []  # with the files to be removed after each

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a whole checkpoint, or with the options that `ShardedStrategy` gives, a sharded one.

        Args:
            checkpoint: The checkpoint; if sharded, every process calls this, with its parts of the tensors.
            path: The file.
            storage_options: ``parameters``, as in `Shards`, and ``asynchronous``, whether to write in the background.

        Raises:
            UserError: If there is no room for it, or there was none for the one before.
        """
        self._finish(1 if storage_options is not None and storage_options["asynchronous"] else 0)
        if storage_options is None:
            super().save_checkpoint(checkpoint, path)
            return
        if "://" in str(path):
            raise UserError(f"checkpoint.dirpath: {path} is remote; give a local folder.")
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        path, parameters = Path(path), storage_options["parameters"]
        small, tensors = divide(checkpoint, parameters)
        chunks = {name: Chunks(tensor) for name, tensor in tensors.items()}
        stream = io.BytesIO()
        if dist.get_rank() == 0:
            torch.save(small, stream)
        content, step = stream.getvalue(), checkpoint.get("global_step", 0)
        if not storage_options["asynchronous"]:
            self._write(path, content, chunks, parameters, step)
            return
        self._thread = self._thread or ThreadPoolExecutor(1, "checkpoint", _use_device, _current_device())
        copies = {name: parts.copied() for name, parts in chunks.items()}
        self._saving.append((self._thread.submit(self._write, path, content, copies, parameters, step), []))

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
        if not Path(path).is_file():
            raise UserError(f"checkpoint {path}: no such file.")
        if found := find_corruption(path):
            raise UserError(f"checkpoint {path}: it is damaged ({found}); use another one.")
        checkpoint = read_torch_file(path, mmap=True)  # of a whole one each process takes its parts
        mine = {**dict(model.named_buffers()), **dict(model.named_parameters(remove_duplicate=False))}
        fill(Path(path), checkpoint, "" if optimizers else "state_dict.", mine.get)
        return checkpoint

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Read a whole checkpoint, as `AtomicCheckpointIO` does, once what is being written is complete."""
        self.wait()
        return super().load_checkpoint(path, map_location, weights_only)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint, once those that are being written are complete."""
        if self._saving:
            self._saving[-1][1].append(path)
        else:
            super().remove_checkpoint(path)

    def wait(self) -> None:
        """Wait until the checkpoints that are being written are complete.

        Raises:
            UserError: If there was no room for one.
        """
        self._finish(0)

    def _finish(self, most: int) -> None:
        """Wait until at most so many are being written: all processes for the same ones, as all have to raise."""
        while len(self._saving) > most:
            saving, outdated = self._saving.pop(0)
            saving.result()
            for path in outdated:
                super().remove_checkpoint(path)

    def teardown(self) -> None:
        """Wait; where an error ends the run already, another one is only printed."""
        ends_by_error = sys.exception() is not None
        try:
            self.wait()
        except Exception as error:
            if not ends_by_error:
                raise
            print(f"warning: {first_line(error)}", file=sys.stderr)
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None

    def _write(
        self, path: Path, content: bytes, chunks: dict[str, Chunks], parameters: list[list[str]], step: int
    ) -> None:
        """Write the shards, then the file; all processes raise the same if one of them fails."""
        try:
            folder = self._in_first(lambda: _new_folder(path, step))
            writer = ShardWriter(folder, path)
            save(dict(chunks), storage_writer=writer, planner=SavePlanner(), process_group=self._group)
            files: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(files, writer.checksums, group=self._group)
            shards = Shards(folder.name, {name: sum for part in files for name, sum in part.items()}, parameters)
            self._in_first(lambda: _name(path, content, shards))
        except (Exception, CheckpointException) as error:
            self._in_first(lambda: remove_unnamed(path.parent))
            cause = _cause(error)
            if isinstance(cause, OSError) and (full := no_room(cause, path, [])):
                raise UserError(full) from error
            if cause is not error:
                raise cause from error
            raise

    def _in_first(self, do: Callable[[], Any]) -> Any:
        """Return what the first process gets, in all of them; raise what it raises."""
        answer: list[Any] = [None, None]
        if dist.get_rank() == 0:
            try:
                answer[0] = do()
            except Exception as error:
                answer[1] = error
        dist.broadcast_object_list(answer, group=self._group)
        if answer[1] is not None:
            raise answer[1]
        return answer[0]


def _current_device() -> tuple[int, ...]:
    return (torch.cuda.current_device(),) if torch.cuda.is_initialized() else ()


def _use_device(*device: int) -> None:
    """Let a thread use its process's GPU, as DCP asks for the current one: a new thread's is the first."""
    if device:
        torch.cuda.set_device(*device)


def _new_folder(path: Path, step: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_unnamed(path.parent)
    folder = path.with_name(f"{path.name}.shards-{step}-{uuid4().hex[:8]}")
    folder.mkdir()
    mark_unfinished(folder)
    return folder


def _name(path: Path, content: bytes, shards: Shards) -> None:
    """Let a file name the folder of its shards, and remove those that it named before."""
    folder = path.with_name(shards.folder)
    if unseen := next((name for name in shards.files if not (folder / name).is_file()), None):
        raise UserError(f"checkpoint.dirpath: {folder / unseen} was written on another machine; give a shared folder.")
    sync(folder)
    mark_replaced(path)
    write_atomically(path, lambda stream: stream.write(small_file(content, shards)))
    os.unlink(folder / UNFINISHED)
    remove_unnamed(path.parent)


def _cause(error: BaseException) -> BaseException:
    """Return what failed, of several processes a `UserError` first."""
    if not isinstance(error, CheckpointException):
        return error
    causes = [cause for cause, _ in error.failures.values()]
    return next((cause for cause in causes if isinstance(cause, UserError)), causes[0])
