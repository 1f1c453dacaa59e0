"""How a process computes: the layout of convolutions in memory, and the number of threads."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class ChannelsLast(Callback):
    """Lay out the filters of two-dimensional convolutions as (filters, height, width, channel) in memory.

    Convolutions and what follows them then compute in that layout, whatever that of the images is. Shapes, checkpoints
    and, up to rounding, results stay the same. It is faster on GPUs with mixed precision and often on CPUs
    (https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html).
    """

    part_of_step = True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Change the layout in place, before the optimizer is made."""
        for tensor in (*pl_module.parameters(), *pl_module.buffers()):
            if tensor.ndim == 4:  # Module.to takes volumes, too, and fails with them
                tensor.data = tensor.detach().to(memory_format=torch.channels_last)


class Threads(Callback):
    """Set how many threads torch computes with on the CPU, in every process of a run.

    Lightning sets a number of its own in processes that it starts, so that it has to be set in each, after that.

    Args:
        number: The number.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(self.number)

    def teardown(self, *_: Any, **__: Any) -> None:
        torch.set_num_threads(self._before)
