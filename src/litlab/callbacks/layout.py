"""The layout of convolutions in memory."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class ChannelsLast(Callback):
    """Lay out the filters of two-dimensional convolutions as (filters, height, width, channel) in
    memory.

    Convolutions and what follows them then compute in that layout, whatever that of the images is.
    Shapes, checkpoints and, up to rounding, results stay the same. It is faster on GPUs with mixed
    precision and often on CPUs
    (https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html).
    """

    part_of_step = True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Change the layout in place, before the optimizer is made."""
        for tensor in (*pl_module.parameters(), *pl_module.buffers()):
            if tensor.ndim == 4:  # Module.to takes volumes, too, and fails with them
                tensor.data = tensor.detach().to(memory_format=torch.channels_last)
