"""Exponential moving average of the weights."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from litlab.callbacks.averaging import AveragedWeights, tensors_of
from litlab.types import HalfOpenUnitInterval, NonNegativeInt, PositiveInt, check_bounds
from litlab.util.foreach import copy_all, lerp_all


class EMA(AveragedWeights):
    """Keep an exponential moving average of the weights, and validate, test and save that average.

    After each optimizer step: average = d * average + (1 - d) * weights, batch normalisation's statistics included
    (Polyak and Juditsky, 1992, https://doi.org/10.1137/0330046). The first update copies the weights; in the t-th after
    it, counted from 0, d = min(decay, (1 + t) / (10 + t)), as in TensorFlow and timm: early on the average looks back
    over a ninth of the updates so far, so that a run of a few hundred steps does not end with an average that is still
    half made of its untrained beginning. In checkpoints ``state_dict`` is the average, so that testing and loading need
    nothing special; the weights in training are under ``current_model_state``.

    Lightning's own ``EMAWeightAveraging`` (2.6.6) puts the weights in training, not the average, into the model when
    ``trainer.test(ckpt_path=...)`` follows ``fit`` in the same process. It averages counters such as
    ``num_batches_tracked``, which truncation then keeps from growing, and goes through the tensors one by one.

    Args:
        decay: Share of the old average that each update keeps at most, from 0 to below 1. The average then looks back
            over about ``every_n_steps / (1 - decay)`` optimizer steps: 0.999 over the last thousand. It is reached
            after about ``9 * every_n_steps / (1 - decay)`` steps.
        every_n_steps: Number of optimizer steps from one update to the next.
        start_step: Optimizer step before which nothing is averaged; the average starts as a copy of the weights then.

    Raises:
        UserError: If a value is out of bounds; in a fit, if the strategy shards the weights.
    """

    section = "ema"

    def __init__(
        self, decay: HalfOpenUnitInterval = 0.999, every_n_steps: PositiveInt = 1, start_step: NonNegativeInt = 0
    ) -> None:
        check_bounds(EMA, locals(), "ema")
        self.decay = decay
        self.every_n_steps = every_n_steps
        self.start_step = start_step
        super().__init__()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Copy the weights, with an update that does not wait for the device."""
        super().setup(trainer, pl_module, stage)
        if self._average_model is not None:
            # torch's own keeps the number of updates on the device, reads it and copies it there, at every update.
            self._average_model.n_averaged = self._average_model.n_averaged.cpu()
            self._average_model.update_parameters = self._update

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Return whether to update after optimizer step ``step_idx`` (from 0)."""
        if step_idx is None or step_idx < self.start_step:
            return False
        return (step_idx - self.start_step) % self.every_n_steps == 0

    @torch.no_grad()
    def _update(self, model: nn.Module) -> None:
        # All tensors of one device and one type at a time, in a few kernels.
        assert self._average_model is not None
        updates = self._average_model.n_averaged
        decay = min(self.decay, (1 + t) / (10 + t)) if (t := int(updates) - 1) >= 0 else 0.0
        groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        for average, weight in zip(tensors_of(self._average_model.module), tensors_of(model), strict=True):
            averages, weights = groups.setdefault((average.device, average.dtype), ([], []))
            averages.append(average)
            weights.append(weight.to(average))  # the average is of float32 with bf16-true as well
        for (_, kind), (averages, weights) in groups.items():
            if decay and (kind.is_floating_point or kind.is_complex):
                lerp_all(averages, weights, 1.0 - decay)
            else:  # the first copy; and counters have a newest value, not a mean
                copy_all(averages, weights)
        updates += 1
