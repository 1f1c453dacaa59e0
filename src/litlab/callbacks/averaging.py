"""Averages of the weights: the model is validated, tested and saved with them.

Lightning's WeightAveraging (2.6.6) copies the whole module, which can't be sharded, validates
untrained weights until the first update, and tests the raw weights when
``trainer.test(ckpt_path=...)`` follows ``fit``. Its StochasticWeightAveraging validates and saves
the raw weights.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval
from litlab.util.ranks import divides_model, share_buffers
from litlab.util.steps import epochs_of_run
from litlab.util.tensors import copy_tensor, divide_like, get_local


class AveragedWeights(Callback):
    """Validate, test and save an average of the weights, from its first update on.

    In checkpoints ``state_dict`` is the average, so that testing and loading need nothing special;
    the weights in training are under ``current_model_state``. Processes that share the weights
    average their parts.

    Attributes:
        average: The average in a fit, by the keys of the model's ``state_dict``; of divided tensors
            this process's parts. Numbers of 16 bits are averaged in float32.
        updates: How often it was updated.
        steps: Optimizer steps so far.
    """

    part_of_step = True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.reset()
        is_ours = hasattr(trainer.strategy, "gather_state")  # ShardedStrategy
        if stage == "fit" and divides_model(trainer.strategy) and not is_ours:
            raise UserError(
                "trainer.strategy: it shards the weights in a way that does not allow averaging; "
                "use fsdp2, ddp or one device, or set ema and swa to null"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, value in tensors_of(pl_module).items():
            average = copy_tensor(
                value, torch.float32 if value.dtype in (torch.float16, torch.bfloat16) else None
            )
            if name in self._saved:
                get_local(average).copy_(get_local(divide_like(average, self._saved[name])))
            self.average[name] = average
        self._saved = {}
        self.steps = trainer.global_step

    @torch.no_grad()
    def update(self, pl_module: nn.Module, move: Callable[..., None]) -> None:
        """Move the average towards the weights; counters are copied.

        Args:
            pl_module: The model.
            move: One of the functions of ``torch.optim.swa_utils`` that update many tensors.
        """
        averages, weights = [], []
        for name, weight in tensors_of(pl_module).items():
            average = get_local(self.average[name])
            if average.is_floating_point():
                averages.append(average)
                weights.append(get_local(weight).to(average))
            else:
                average.copy_(get_local(weight))
        move(averages, weights, self.updates)
        self.updates += 1

    # The average in the place of the weights

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.put_in(pl_module)
        if self._weights:
            share_buffers(trainer)  # a checkpoint has those of the first process

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        set_tensors(pl_module, self._weights)
        self._weights = {}

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        if trainer.validating:  # it leaves the average in the model
            self.on_validation_epoch_end(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.put_in(pl_module)

    def put_in(self, pl_module: LightningModule) -> None:
        """Put the average into the model, once there is one."""
        if self.updates:
            self._weights = {
                name: copy_tensor(value) for name, value in tensors_of(pl_module).items()
            }
            set_tensors(pl_module, self.average)

    def reset(self, *_: Any, **__: Any) -> None:
        """Forget the average, and free its memory."""
        self.updates = 0
        self.average: dict[str, Tensor] = {}
        self._weights: dict[str, Tensor] = {}  # in training, while the model has the average
        # The average of the checkpoint that a run continues from
        self._saved: dict[str, Tensor] = {}

    teardown = reset

    # The checkpoint, which is of the average: so that all that loads weights needs to know nothing

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if not self.updates:
            return
        gather: Any = getattr(trainer.strategy, "gather_state", dict)
        state = pl_module.state_dict()
        checkpoint["current_model_state"] = (
            gather(state | self._weights) if self._weights else checkpoint["state_dict"]
        )
        checkpoint["state_dict"] = gather(state | self.average)
        checkpoint["averaging_state"] = {"n_averaged": self.updates}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore average and weights to continue a fit; for all else the model has the average
        already.
        """
        if trainer.state.fn == "fit" and "current_model_state" in checkpoint:
            self.updates = checkpoint["averaging_state"]["n_averaged"]
            self._saved = checkpoint["state_dict"]
            weights = {"state_dict": checkpoint["current_model_state"]}
            trainer.strategy.load_model_state_dict(weights, strict=pl_module.strict_loading)


class EMA(AveragedWeights):
    """Keep an exponential moving average of the weights, and validate, test and save that average.

    After each optimizer step: average = d * average + (1 - d) * weights, batch normalisation's
    statistics included (Polyak and Juditsky, 1992, https://doi.org/10.1137/0330046). The first
    update copies the weights; in the t-th after it, counted from 0, d = min(decay, (1 + t) / (10 +
    t)), as in TensorFlow and timm: early on, the average covers about a ninth of the updates so
    far, so that in a run of a few hundred steps the untrained beginning does not still make up half
    of it.

    Args:
        decay: Largest share of the old average that an update keeps, from 0 to below 1. The average
            then covers about ``1 / (1 - decay)`` optimizer steps: with 0.999, the last thousand.
            This decay is reached after about ``9 / (1 - decay)`` steps.

    Raises:
        UserError: In a fit, if the strategy shards the weights in a way of its own.
    """

    def __init__(self, decay: HalfOpenUnitInterval = 0.999) -> None:
        self.decay = decay

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        if trainer.global_step > self.steps:  # no gradients are being accumulated
            self.steps = trainer.global_step
            decay = min(self.decay, self.updates / (9 + self.updates))  # 0 at first
            self.update(pl_module, get_ema_multi_avg_fn(decay))


class SWA(AveragedWeights):
    """Average the weights at the ends of the last epochs, and validate, test and save that average.

    From ``start`` on, each epoch adds its final weights to a plain mean. The learning rates stay at
    the value that the schedule has reached by then, so that the epochs differ (Izmailov et al.
    2018, arXiv:1803.05407); only ReduceLROnPlateau continues. Statistics of batch norms are
    averaged, too. The paper measures them again instead, which takes a third more time; in a small
    trial it was better only with a learning rate so high that training hardly worked.

    Args:
        start: Share of the run's epochs after which averaging starts. The run must have
            ``trainer.max_epochs`` or ``max_steps``, which may cut its last epoch short.

    Raises:
        UserError: In a fit, if the strategy shards the weights in a way of its own, or the length
            of the run is not known.
    """

    def __init__(self, start: HalfOpenUnitInterval = 0.75) -> None:
        self.start = start
        self._first_epoch = 0  # that is averaged

    def has_begun(self, trainer: Trainer) -> bool:
        """Return whether the epoch is averaged. A run that is resumed for longer goes on with its
        average.
        """
        return self.updates > 0 or trainer.current_epoch >= self._first_epoch

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        epochs = epochs_of_run(trainer)
        if math.isinf(epochs):
            raise UserError(
                "swa.start: it is a share of the run, and the run's length is not known; set "
                "trainer.max_epochs"
            )
        self._first_epoch = int(self.start * epochs)
        self.on_train_epoch_start(trainer, pl_module)  # which a resumed run may be in the middle of

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.has_begun(trainer):
            return
        for schedule in trainer.lr_scheduler_configs:
            if not schedule.reduce_on_plateau:
                schedule.frequency = sys.maxsize  # it takes no further step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        is_last = trainer.is_last_batch or trainer.global_step == trainer.max_steps
        if is_last and self.has_begun(trainer):
            self.update(pl_module, get_swa_multi_avg_fn())

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        if not self.updates:
            rank_zero_info(
                f"warning: swa: the run ended before epoch {self._first_epoch + 1}, the first that "
                "is averaged: its weights are those of the last step"
            )


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model's ``state_dict`` that this process has, by its keys."""
    # FSDP2 keeps some weights whole after a forward pass: what is changed in them gets lost.
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    state = model.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


@torch.no_grad()
def set_tensors(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy values into the tensors of a model, by the keys of its ``state_dict``."""
    tensors = tensors_of(model)
    for name, value in values.items():
        get_local(tensors[name]).copy_(get_local(value))
