"""Stochastic weight averaging."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins import HalfPrecision
from lightning.pytorch.utilities import CombinedLoader, rank_zero_info
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from litlab.callbacks.averaging import AveragedWeights
from litlab.errors import UserError
from litlab.optim.param_groups import set_rate
from litlab.parallel.groups import data_ranks
from litlab.parallel.tensors import tensors_of
from litlab.types import HalfOpenUnitInterval


class SWA(AveragedWeights):
    """Average the weights that the last epochs end with, and validate, test and save that average.

    From the epoch ``start`` on, every epoch adds its weights to the mean, in which all have the same share, and each
    learning rate stays at what the schedule has made of it by then, so that the epochs differ (Izmailov et al. 2018,
    arXiv:1803.05407); only ReduceLROnPlateau goes on. If that is the run's first epoch, the rates are the optimizer's.
    The statistics of batch norms belong to other weights: they are measured anew with those of the average, in a pass
    over the training data as `torch.optim.swa_utils.update_bn` makes it. That takes about a third of an epoch; networks
    without batch norms do without it.

    Lightning's own ``StochasticWeightAveraging`` (2.6.6) validates and saves the weights in training: the best
    checkpoint, which is tested, is never the average. It leaves out the weights of the last epoch, measures batch norms
    in an additional epoch that is validated and logged like the others, and replaces schedules by one by epochs.

    Args:
        start: Share of the run's epochs that are over when the averaging starts.

    Raises:
        UserError: In a fit, if the run has no number of epochs, its weights have 16 bits or are sharded in a way that
            is not litlab's, or the network has batch norms and the model no ``forward``.
    """

    section = "swa"

    def __init__(self, start: HalfOpenUnitInterval = 0.75) -> None:
        self.start = start
        self._first = 0  # epoch that is averaged
        self._factors: list[float] = []  # of the rates that are held, on those of the optimizer
        super().__init__()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find the first epoch that is averaged."""
        if stage == "fit":
            if trainer.max_epochs is None or trainer.max_epochs < 0:
                raise UserError("swa.start: it is a share of trainer.max_epochs, which is not set; set it")
            if isinstance(trainer.precision_plugin, HalfPrecision):
                raise UserError(
                    f"swa: trainer.precision {trainer.precision} has weights too coarse to be averaged; set "
                    "trainer.precision to bf16-mixed, or swa to null"
                )
            if _has_batch_norms(pl_module) and not is_overridden("forward", pl_module, LightningModule):
                raise UserError(
                    f"swa: {type(pl_module).__name__} has batch norms, and no forward to measure them with; give it "
                    "one that takes the inputs of a batch, or set swa to null"
                )
            self._first = int(self.start * trainer.max_epochs)
        super().setup(trainer, pl_module, stage)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin anew where a run is resumed for so much longer that the averaging has not begun yet."""
        if trainer.current_epoch < self._first and self.updates:
            self.updates = 0
            self._factors = []
            rank_zero_info(f"swa: the run is longer now, and the average begins anew after epoch {self._first}.")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the learning rates of the first epoch that is averaged; in the run's first, a warm-up may just begin."""
        if trainer.current_epoch >= self._first and not self._factors:
            groups = _scheduled(trainer)
            self._factors = [float(group["lr"] / group["initial_lr"]) if self._first else 1.0 for group in groups]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Hold the learning rates, whatever the schedule does."""
        for group, factor in zip(_scheduled(trainer), self._factors, strict=bool(self._factors)):
            set_rate(group, float(group["initial_lr"]) * factor)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add the weights to the average at the end of an epoch, before they are validated."""
        if trainer.is_last_batch and trainer.current_epoch >= self._first:
            self.update(pl_module, 1 / (self.updates + 1), buffers=False)
            if _has_batch_norms(pl_module):  # on any process: all have to take part
                self._measure_batch_norms(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say so where the run was over before the averaging."""
        if not self.updates:
            rank_zero_info(f"swa: the run ended before the end of epoch {self._first + 1}; nothing was averaged.")
        super().on_train_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Return the rates that are held; the average itself is in the checkpoint."""
        return {"factors": self._factors}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Hold these rates."""
        self._factors = state_dict["factors"]

    @torch.no_grad()
    def _measure_batch_norms(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the average's batch norms the mean statistics of all batches; those that are frozen keep theirs."""
        assert self.average is not None
        self.exchange(pl_module)
        momenta = {norm: norm.momentum for norm in _batch_norms(pl_module) if norm.training}
        for norm in momenta:
            norm.momentum = None  # the mean of all batches
            norm.reset_running_stats()
        forward = inspect.signature(pl_module.forward).parameters
        for batch in _next_epoch(trainer):
            batch = trainer.precision_plugin.convert_input(batch)
            batch = trainer.strategy.batch_to_device(pl_module._on_before_batch_transfer(batch))
            with trainer.precision_plugin.forward_context():
                if isinstance(batch, Mapping):
                    pl_module(**{name: value for name, value in batch.items() if name in forward})
                else:
                    pl_module(batch[0] if isinstance(batch, list | tuple) else batch)
        alone = data_ranks(trainer)["world_size"] == 1
        for norm, momentum in momenta.items():
            norm.momentum = momentum
            for statistic in (norm.running_mean, norm.running_var) if not alone else ():
                statistic.copy_(trainer.strategy.reduce(statistic, reduce_op="mean"))  # pyright: ignore[reportArgumentType]
        for name, value in tensors_of(pl_module):
            if not isinstance(value, nn.Parameter):
                self.average[name].copy_(value)
        self.exchange(pl_module)


def _has_batch_norms(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) and part.running_mean is not None for part in module.modules())


def _batch_norms(module: nn.Module) -> list[Any]:
    """Return the batch norms of this process that keep statistics."""
    norms: list[Any] = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    return [norm for norm in norms if norm.running_mean is not None and not norm.running_mean.is_meta]


def _scheduled(trainer: Trainer) -> list[dict[str, Any]]:
    """Return the parameter groups that have a schedule by steps or epochs: it notes the rate that it starts with."""
    groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
    return [group for group in groups if "initial_lr" in group]


def _next_epoch(trainer: Trainer) -> Iterator[Any]:
    """Yield the training batches in the order of the next epoch: all of them, also where this one was resumed."""
    loader = CombinedLoader(trainer.train_dataloader)
    for part in loader.flattened:
        if hasattr(sampler := getattr(part, "sampler", None), "set_epoch"):
            sampler.set_epoch(trainer.current_epoch + 1)  # pyright: ignore[reportOptionalMemberAccess]
    for number, (batch, _, _) in enumerate(loader):
        if number >= trainer.num_training_batches:
            return
        yield batch
