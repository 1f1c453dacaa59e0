"""What happens to the fits of the tests, in their second epoch."""

import os
import signal
import time
from pathlib import Path

from lightning.pytorch import Callback

from litlab.runs.folder import read_json
from litlab.runs.signals import StopSignals

COMMAND = "TEST_COMMAND"  # variable with the process of the command
SECONDS = 60


class Trouble(Callback):
    """Do what a file says for the seed of this fit: ``interrupted``, as by Ctrl-C, or ``raises``.

    Args:
        file: JSON: what happens, by seed. Seeds that it does not have are left alone.
    """

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        kind = read_json(self.file).get(os.environ["PL_GLOBAL_SEED"])
        if trainer.current_epoch != 1 or batch_idx != 1:
            return
        if kind == "raises":
            raise RuntimeError("it broke")
        if kind == "interrupted":
            [signals] = [one for one in trainer.callbacks if isinstance(one, StopSignals)]
            os.kill(int(os.environ[COMMAND]), signal.SIGINT)
            deadline = time.monotonic() + SECONDS
            while not signals._signum and time.monotonic() < deadline:
                time.sleep(0.02)
