"""What averages of the weights have in common."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor, nn

from litlab.errors import UserError
from litlab.util.strategies import shards


class AveragedWeights(WeightAveraging):
    """Validate, test and save an average of the weights, from the first time that it is updated.

    Lightning's WeightAveraging (2.6.6) validates, saves and ends with the untrained weights that it copied at the
    start, for as long as nothing is averaged, and puts the weights in training, not the average, into the model when
    ``trainer.test(ckpt_path=...)`` follows ``fit`` in the same process.
    """

    section: str  # of the callback in a config
    _aside: dict[str, Any] | None = None  # the weights in training, while the model has an average of another type

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Copy the model, unless it is to be sharded: the copy would have other shapes."""
        if stage == "fit" and shards(trainer.strategy):
            raise UserError(
                f"{self.section}: trainer.strategy {type(trainer.strategy).__name__} shards the weights, which then "
                f"can't be averaged; use ddp or one device, or set {self.section} to null"
            )
        super().setup(trainer, pl_module, stage)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring the average to where the weights will be: it was copied before they were moved there."""
        if self._average_model is not None:
            self._average_model.module.to(trainer.strategy.root_device)

    @property
    def updates(self) -> int:
        """How often the average was updated; 0 where there is none."""
        return 0 if self._average_model is None else int(self._average_model.n_averaged)  # which is on the CPU

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the average as ``state_dict``, the weights in training as ``current_model_state``."""
        weights = checkpoint["state_dict"]
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        if not self.updates:
            checkpoint["state_dict"] = weights

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Restore average and weights to continue a fit; for all else the model has the average already."""
        if trainer.state.fn == "fit":
            super().on_load_checkpoint(trainer, pl_module, checkpoint)
            if self._average_model is not None and self.state_key not in checkpoint["callbacks"]:
                self._average_model.n_averaged.zero_()  # it is an average of another kind: this one begins anew

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Free the average: at the end of ``fit`` the model itself has become it."""
        self._average_model = None

    def _swap_models(self, pl_module: LightningModule) -> None:
        if not self.updates:
            return
        assert self._average_model is not None
        average = self._average_model.module
        if all(one.dtype == other.dtype for one, other in zip(tensors_of(average), tensors_of(pl_module), strict=True)):
            super()._swap_models(pl_module)
            return
        averages, weights = average.state_dict(), pl_module.state_dict()
        # With bf16-true the average is of float32: exchanged with the weights, it would come back rounded.
        aside = None if self._aside is not None else {name: value.clone() for name, value in weights.items()}
        pl_module.load_state_dict(self._aside or averages)
        self._aside = aside

    def _copy_average_to_current(self, pl_module: LightningModule) -> None:
        if self.updates:
            super()._copy_average_to_current(pl_module)


def tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """Yield parameters and buffers."""
    return chain(model.parameters(), model.buffers())
