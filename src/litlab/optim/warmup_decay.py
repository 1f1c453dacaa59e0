"""A learning rate that rises from zero, then falls over the rest of the run."""

import math
from typing import Literal

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from litlab.types import ClosedUnitInterval, HalfOpenUnitInterval, PositiveInt


class WarmupDecay(LRScheduler):
    """Linear warm-up, then linear or cosine decay, as a factor on every parameter group's own learning rate.

    OneCycleLR does the same but sets one peak for all groups; here each group keeps its ratio to the others. Step it
    after every optimizer step (``interval: step``).

    Args:
        optimizer: Its groups' learning rates are the peaks.
        total_steps: Length. Taken from the run when left out of the YAML.
        warmup: Share of the steps that the rate rises over, from 0 to below 1.
        final: Factor that is left at the end.
        decay: Shape of the descent.
        last_epoch: Step to go on from, as in every scheduler of torch.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_steps: PositiveInt,
        warmup: HalfOpenUnitInterval = 0.1,
        final: ClosedUnitInterval = 0.0,
        decay: Literal["linear", "cosine"] = "linear",
        last_epoch: int = -1,
    ) -> None:
        self.warmup, self.final, self.decay, self.total_steps = warmup, final, decay, total_steps
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """Learning rate of each group for the step that comes next."""
        # The first step is taken at 1/(n+1) of the way, not at 0: a step with a rate of zero would be wasted.
        progress = min(1.0, (self.last_epoch + 1) / (self.total_steps + 1))
        if progress < self.warmup:
            factor = progress / self.warmup
        else:
            left = (1 - progress) / (1 - self.warmup)
            if self.decay == "cosine":
                left = (1 - math.cos(math.pi * left)) / 2
            factor = self.final + (1 - self.final) * left
        return [base * factor for base in self.base_lrs]
