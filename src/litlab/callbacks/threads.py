"""The number of threads of a process."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class Threads(Callback):
    """Set how many threads torch computes with on the CPU, in every process of a run.

    Lightning sets a number of its own in processes that it starts, so that it has to be set in each, after that.

    Args:
        number: The number.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._before = number

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(self.number)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        torch.set_num_threads(self._before)
