"""What tests put into the fits of a sweep."""

import os
import signal
import time
from pathlib import Path

import torch
from lightning.pytorch import Callback


class Held(Callback):
    """Wait at the start of the second epoch until a file is there: there is time to kill something.

    Args:
        file: Its path.
    """

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def on_train_epoch_start(self, trainer, pl_module):
        deadline = time.monotonic() + 240  # a test that was killed leaves nothing behind
        while trainer.current_epoch == 1 and not self.file.is_file():
            time.sleep(0.02)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.file} has not come")


class Trouble(Callback):
    """Come to a bad end in the second epoch.

    Args:
        kind: ``killed``; ``nan``, a model that is of no use any more; ``worse``, one
            that was spoilt in the first epoch already; anything else: no trouble.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1 and self.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)

    @torch.no_grad()
    def on_validation_start(self, trainer, pl_module):
        for parameter in pl_module.parameters():
            if self.kind == "nan" and trainer.current_epoch == 1:
                parameter.fill_(float("nan"))
            if self.kind == "worse":
                parameter.fill_(1.0)
