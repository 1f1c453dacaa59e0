"""Exponential moving average of the weights."""

from typing import Any

from lightning.pytorch import LightningModule, Trainer

from litlab.callbacks.averaging import AveragedWeights
from litlab.types import HalfOpenUnitInterval, NonNegativeInt, PositiveInt


class EMA(AveragedWeights):
    """Keep an exponential moving average of the weights, and validate, test and save that average.

    After each optimizer step: average = d * average + (1 - d) * weights, batch normalisation's statistics included
    (Polyak and Juditsky, 1992, https://doi.org/10.1137/0330046). The first update copies the weights; in the t-th after
    it, counted from 0, d = min(decay, (1 + t) / (10 + t)), as in TensorFlow and timm: early on the average looks back
    over a ninth of the updates so far, so that a run of a few hundred steps does not end with an average that is still
    half made of its untrained beginning. It works with all of litlab's strategies; of weights that processes share,
    each averages its part.

    Lightning's own ``EMAWeightAveraging`` (2.6.6) averages counters such as ``num_batches_tracked``, which truncation
    then keeps from growing, and goes through the tensors one by one; `AveragedWeights` says what else differs.

    Args:
        decay: Share of the old average that each update keeps at most, from 0 to below 1. The average then looks back
            over about ``every_n_steps / (1 - decay)`` optimizer steps: 0.999 over the last thousand. It is reached
            after about ``9 * every_n_steps / (1 - decay)`` steps.
        every_n_steps: Number of optimizer steps from one update to the next.
        start_step: Optimizer step before which nothing is averaged; the average starts as a copy of the weights then.

    Raises:
        UserError: In a fit, if the strategy shards the weights in a way of its own.
    """

    section = "ema"

    def __init__(
        self, decay: HalfOpenUnitInterval = 0.999, every_n_steps: PositiveInt = 1, start_step: NonNegativeInt = 0
    ) -> None:
        self.decay = decay
        self.every_n_steps = every_n_steps
        self.start_step = start_step
        super().__init__()
        self._last = 0  # optimizer steps that were taken when the average was last updated

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin anew."""
        super().setup(trainer, pl_module, stage)
        self._last = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the average after an optimizer step."""
        steps = trainer.global_step
        since = steps - 1 - self.start_step
        if steps > self._last and since >= 0 and since % self.every_n_steps == 0:
            t = self.updates - 1
            self.update(pl_module, 1.0 - min(self.decay, (1 + t) / (10 + t)), buffers=True)
            self._last = steps

    def state_dict(self) -> dict[str, Any]:
        """Return when the average was last updated; the average itself is in the checkpoint."""
        return {"latest_update_step": self._last}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from there."""
        self._last = state_dict["latest_update_step"]
