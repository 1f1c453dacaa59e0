"""Averages of the weights: the model is validated, tested and saved with them.

Lightning's WeightAveraging (2.6.6) copies the whole module, which can't be sharded, validates untrained weights until
the first update, and tests the raw weights when ``trainer.test(ckpt_path=...)`` follows ``fit``. Its
StochasticWeightAveraging validates and saves the raw weights.
"""

import sys
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.errors import UserError
from litlab.optim.param_groups import set_rate
from litlab.parallel.foreach import copy_all, local_part
from litlab.parallel.groups import DataGroups, shards, share_buffers
from litlab.parallel.tensors import copy_of, divided_like, tensors_of
from litlab.types import HalfOpenUnitInterval, NonNegativeInt, PositiveInt

HALVES = (torch.float16, torch.bfloat16)


class AveragedWeights(Callback):
    """Validate, test and save an average of the weights, from its first update on.

    In checkpoints ``state_dict`` is the average, so that testing and loading need nothing special; the weights in
    training are under ``current_model_state``. Processes that share the weights average their parts.

    Attributes:
        average: The average in a fit, by the names of parameters and buffers; of divided ones this process's parts.
            Numbers of 16 bits are averaged in float32.
        updates: How often it was updated.
    """

    part_of_step = True
    section: str  # of the callback in a config

    def __init__(self) -> None:
        self.average: dict[str, Tensor] | None = None
        self.updates = 0
        self._weights: dict[str, Tensor] | None = None  # in training, while the model has the average
        self._saved: dict[str, Tensor] = {}  # the average of the checkpoint that a run continues from

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.updates, self._saved = 0, {}
        if stage == "fit" and shards(trainer.strategy) and not isinstance(trainer.strategy, DataGroups):
            raise UserError(
                f"{self.section}: trainer.strategy {type(trainer.strategy).__name__} shards the weights in a way in "
                f"which they can't be averaged; use fsdp2, ddp or one device, or set {self.section} to null"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.average = {}
        for name, value in tensors_of(pl_module):
            average = copy_of(value, torch.float32 if value.dtype in HALVES else None)
            if name in self._saved:
                local_part(average).copy_(local_part(divided_like(average, self._saved[name])))
            self.average[name] = average
        self._saved = {}

    @torch.no_grad()
    def update(self, pl_module: nn.Module, share: float) -> None:
        """Move the average towards the weights by a share of the way; 1 makes it a copy, as counters always are."""
        assert self.average is not None
        averages, weights = [], []
        for name, weight in tensors_of(pl_module):
            average = local_part(self.average[name])
            if average.is_floating_point() or average.is_complex():
                averages.append(average)
                weights.append(local_part(weight).to(average))
            else:
                average.copy_(local_part(weight))
        torch._foreach_lerp_(averages, weights, share)  # pyright: ignore[reportPrivateImportUsage]
        self.updates += 1

    @torch.no_grad()
    def exchange(self, pl_module: nn.Module) -> None:
        """Put the average into the model, or the weights in training back if it has the average."""
        own = dict(tensors_of(pl_module))
        if self._weights is None:
            values, self._weights = self.average, {name: copy_of(value) for name, value in own.items()}
        else:
            values, self._weights = self._weights, None
        assert values is not None
        copy_all([local_part(tensor) for tensor in own.values()], [local_part(values[name]) for name in own])

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.average is not None and self.updates:
            self.exchange(pl_module)
            share_buffers(trainer)  # a checkpoint has those of the first process

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._weights is not None:
            self.exchange(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.updates:
            self.exchange(pl_module)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.average = self._weights = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self.average is None or not self.updates:
            return
        if self._weights is None:
            checkpoint["current_model_state"] = checkpoint["state_dict"]
        else:
            checkpoint["current_model_state"] = _state(trainer, pl_module, self._weights)
        checkpoint["state_dict"] = _state(trainer, pl_module, self.average)
        checkpoint["averaging_state"] = {"n_averaged": self.updates}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Restore average and weights to continue a fit; for all else the model has the average already."""
        if trainer.state.fn != "fit" or "current_model_state" not in checkpoint:
            return
        self.updates = checkpoint["averaging_state"]["n_averaged"]
        saved = checkpoint["state_dict"]
        self._saved = {name: saved[key] for key, name in _names_of_keys(pl_module).items()}
        weights = {"state_dict": checkpoint["current_model_state"]}
        trainer.strategy.load_model_state_dict(weights, strict=pl_module.strict_loading)


class EMA(AveragedWeights):
    """Keep an exponential moving average of the weights, and validate, test and save that average.

    After each optimizer step: average = d * average + (1 - d) * weights, batch normalisation's statistics included
    (Polyak and Juditsky, 1992, https://doi.org/10.1137/0330046). The first update copies the weights; in the t-th after
    it, counted from 0, d = min(decay, (1 + t) / (10 + t)), as in TensorFlow and timm: early on the average looks back
    over a ninth of the updates so far, so that a run of a few hundred steps does not end with an average that is still
    half made of its untrained beginning.

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
        self._steps = 0  # optimizer steps so far
        super().__init__()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._steps = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._steps:
            return  # gradients are being accumulated
        self._steps = trainer.global_step
        since = self._steps - 1 - self.start_step
        if since < 0 or since % self.every_n_steps:
            return
        decay = min(self.decay, self.updates / (9 + self.updates))  # 0 at first
        self.update(pl_module, 1.0 - decay)


class SWA(AveragedWeights):
    """Average the weights that the last epochs end with, and validate, test and save that average.

    From the epoch ``start`` on, every epoch adds its weights to the mean, in which all have the same share, and each
    learning rate stays at what the schedule has made of it by then, so that the epochs differ (Izmailov et al. 2018,
    arXiv:1803.05407); only ReduceLROnPlateau goes on. If that is the run's first epoch, the rates are the optimizer's.
    Statistics of batch norms are averaged, too. The paper measures them anew, which takes a third more time and was no
    better in a small trial, but for a learning rate so high that training hardly worked.

    Args:
        start: Share of the run's epochs that are over when the averaging starts.

    Raises:
        UserError: In a fit, if the run has no number of epochs, or the strategy shards the weights in a way of its own.
    """

    section = "swa"

    def __init__(self, start: HalfOpenUnitInterval = 0.75) -> None:
        self.start = start
        super().__init__()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit" and (trainer.max_epochs or -1) < 0:
            raise UserError("swa.start: it is a share of trainer.max_epochs, which is not set; set it")

    def has_begun(self, trainer: Trainer) -> bool:
        """Return whether the epoch is averaged. A run that is resumed for longer goes on with its average."""
        assert trainer.max_epochs is not None
        return self.updates > 0 or trainer.current_epoch >= int(self.start * trainer.max_epochs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.on_train_epoch_start(trainer, pl_module)  # which a resumed run may be in the middle of

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.has_begun(trainer):
            return
        for schedule in trainer.lr_scheduler_configs:
            if not schedule.reduce_on_plateau:
                schedule.frequency = sys.maxsize  # it takes no further step
        if trainer.current_epoch == 0:  # where a warm-up may just begin
            for group in trainer.optimizers[0].param_groups:
                set_rate(group, group.get("initial_lr", group["lr"]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_last_batch and self.has_begun(trainer):
            self.update(pl_module, 1 / (self.updates + 1))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        if not self.updates:
            rank_zero_info("swa: the run ended before the first epoch that is averaged; lower swa.start")


def _names_of_keys(model: nn.Module) -> dict[str, str]:
    """Return the names of parameters and buffers by their keys in the ``state_dict``, which may differ."""
    names = {id(value): name for name, value in tensors_of(model)}
    state = model.state_dict(keep_vars=True)
    return {key: names[id(value)] for key, value in state.items() if id(value) in names}


def _state(trainer: Trainer, model: nn.Module, values: dict[str, Tensor]) -> dict[str, Any]:
    """Return the model's ``state_dict`` as checkpoints have it, with other values of its parameters and buffers."""
    own = {key: values[name] for key, name in _names_of_keys(model).items()}
    state = model.state_dict(keep_vars=True) | own
    return trainer.strategy.gathered(state) if isinstance(trainer.strategy, DataGroups) else state
