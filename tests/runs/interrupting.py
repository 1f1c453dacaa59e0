"""Fits that are interrupted at a chosen place: the callback that does it and their processes; not a test itself."""

import errno
import os
import signal
import socket
import sys
from multiprocessing import get_context, set_start_method
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from project.callbacks import EMA

FORKS = get_context("forkserver")  # it imports what takes seconds once; each fit is a process that it forks
FORKS.set_forkserver_preload(["project.start", __name__])


class Deliberate(Exception):
    """What is raised."""


class Interrupt(Callback):
    """Interrupts a fit as the variable INTERRUPT says, such as ``SIGTERM on_train_batch_start 1 3``.

    That is how (``kill``, -9; ``SIGTERM``, to the last process; ``exception``), the hook, the epoch and the batch. In
    any case what each epoch ends with goes into ``final.pt``: weights, their average, state of the optimizer.

    Instead of a hook it may be a point within the writing of checkpoints: ``best_written``, ``old_removed``,
    ``last_written``. ``full`` then lets the next file fail as on a full disk.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        io: Any = trainer.strategy.checkpoint_io
        save, remove = io.save_checkpoint, io.remove_checkpoint

        def saved(checkpoint: Any, path: Any, *arguments: Any, **keywords: Any) -> None:
            save(checkpoint, path, *arguments, **keywords)
            self._reached(trainer, "last_written" if Path(path).name == "last.ckpt" else "best_written")

        def removed(path: Any) -> None:
            remove(path)
            self._reached(trainer, "old_removed")

        io.save_checkpoint, io.remove_checkpoint = saved, removed

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._reached(trainer, "on_test_batch_start")

    def _reached(self, trainer: Trainer, hook: str) -> None:
        how, *place = os.environ.get("INTERRUPT", "never").split()
        if place != [hook, str(trainer.current_epoch), str(trainer.fit_loop.batch_idx)] or trainer.sanity_checking:
            return
        if how == "full":
            torch.save = _no_room
        if how == "exception":
            raise Deliberate(" ".join(place))
        if how == "kill" and trainer.is_global_zero:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "SIGTERM" and trainer.global_rank == trainer.world_size - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._reached(trainer, "on_train_batch_start")

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch_idx == 1:
            self._reached(trainer, "on_validation_batch_start")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._reached(trainer, "on_validation_end")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._reached(trainer, "on_train_epoch_end")
        if trainer.is_global_zero:
            averages = [
                callback._average_model.state_dict() for callback in trainer.callbacks if isinstance(callback, EMA)
            ]
            optimizers = [optimizer.state_dict() for optimizer in trainer.optimizers]
            torch.save([pl_module.state_dict(), averages, optimizers], "final.pt")


def project(folder: Path, *arguments: str, ranks: int = 1, interrupt: str = "never") -> int:
    """Runs ``python -m project ARGUMENTS`` in a folder; what it prints is in ``printed_N.txt``, N the rank.

    Returns:
        The exit code of the first rank, below 0 for one that was killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"INTERRUPT": interrupt, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}
    if ranks > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "NODE_RANK": "0",
            "WORLD_SIZE": str(ranks),
        }
    processes = []
    for rank in range(ranks):
        of_rank = {"LOCAL_RANK": str(rank)} if ranks > 1 else {}
        processes.append(FORKS.Process(target=_run, args=(folder, rank, arguments, environment | of_rank)))
        processes[-1].start()
    try:
        processes[0].join(240)
        if processes[0].exitcode != -signal.SIGKILL:  # the others hang if it was killed
            for process in processes[1:]:
                process.join(20)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return processes[0].exitcode or 0


def _no_room(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _run(folder: Path, rank: int, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    set_start_method(None, force=True)  # the workers of loaders start as they do elsewhere
    os.environ.update(environment)
    os.chdir(folder)
    printed = os.open(f"printed_{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.argv = ["project", *arguments]
    from project.__main__ import main

    torch.set_num_threads(1)
    sys.exit(main())
