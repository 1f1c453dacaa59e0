"""Fits that are interrupted at a chosen place: the callback that does it and their processes; not a
test itself.
"""

import errno
import os
import random
import signal
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch import Callback

from litlab.callbacks.averaging import AveragedWeights
from tests.processes import Python, ranks


class Deliberate(Exception):
    """What is raised."""


class Interrupt(Callback):
    """Interrupts a fit as the variable INTERRUPT says, such as
    ``SIGTERM on_train_batch_start 1 3``, and draws random numbers.

    That is how (``kill``, -9; a signal, to the last process; ``exception``), the hook, the epoch
    and the batch. In any case what each epoch ends with goes into ``final.pt``: weights, their
    average, state of the optimizer.

    Instead of a hook it may be a point within the writing of checkpoints: ``best_written``,
    ``old_removed``, ``last_written``. ``full`` then lets the next file fail as on a full disk.
    """

    def __init__(self) -> None:
        self.drawn: list[float] = []

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state_dict):
        self.drawn = [*state_dict["drawn"]]

    def _draw(self) -> float:
        self.drawn.append(random.random() + np.random.rand())
        return self.drawn[-1]

    def setup(self, trainer, pl_module, stage):
        io = trainer.strategy.checkpoint_io
        save, remove = io.save_checkpoint, io.remove_checkpoint

        def saved(checkpoint, path, *arguments, **keywords):
            save(checkpoint, path, *arguments, **keywords)
            self._reached(
                trainer, "last_written" if Path(path).name == "last.ckpt" else "best_written"
            )

        def removed(path):
            remove(path)
            self._reached(trainer, "old_removed")

        io.save_checkpoint, io.remove_checkpoint = saved, removed

    def _reached(self, trainer, hook):
        how, _, place = os.environ["INTERRUPT"].partition(" ")
        here = f"{hook} {trainer.current_epoch} {trainer.fit_loop.batch_idx}"
        if place != here or trainer.sanity_checking:
            return
        if how == "full":
            torch.save = _no_room
        if how == "exception":
            raise Deliberate(place)
        if how == "kill" and trainer.is_global_zero:
            os.kill(os.getpid(), signal.SIGKILL)
        if how.startswith("SIG") and trainer.global_rank == trainer.world_size - 1:
            os.kill(os.getpid(), signal.Signals[how])

    def on_train_batch_start(self, trainer, pl_module, *_):
        self._reached(trainer, "on_train_batch_start")
        pl_module.log("drawn", self._draw(), logger=False)

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx == 1:
            self._reached(trainer, "on_validation_batch_start")

    def on_validation_end(self, trainer, *_):
        if not trainer.sanity_checking:
            self._draw()

    def on_test_batch_start(self, trainer, *_):
        self._reached(trainer, "on_test_batch_start")

    def on_train_epoch_end(self, trainer, pl_module):
        self._reached(trainer, "on_train_epoch_end")
        if trainer.is_global_zero:
            averages = [
                callback.average
                for callback in trainer.callbacks
                if isinstance(callback, AveragedWeights)
            ]
            optimizers = [optimizer.state_dict() for optimizer in trainer.optimizers]
            torch.save([pl_module.state_dict(), averages, optimizers, self.drawn], "final.pt")


def fit(folder: Path, package: str, *arguments: str, count: int, interrupt: str) -> tuple[int, str]:
    """Runs ``python -m PACKAGE fit ARGUMENTS`` in a folder.

    Returns:
        The exit code of the first rank, below 0 for one that was killed, and what all have printed.
    """
    processes = [
        Python("-m", package, "fit", *arguments, cwd=folder, merge=True,
               environment={"INTERRUPT": interrupt, **of_rank})
        for of_rank in ranks(count)
    ]  # fmt: skip
    try:
        if processes[0].wait() != -signal.SIGKILL:  # the others hang if it was killed
            for process in processes[1:]:
                process.wait(20)
    finally:
        for process in processes:
            process.kill()
    printed = "".join(process.communicate()[0][-3000:] for process in processes)
    return processes[0].wait(), printed


def _no_room(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
