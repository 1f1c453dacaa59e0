"""What averages of the weights have in common."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.errors import UserError
from litlab.parallel.foreach import copy_all, local_part
from litlab.parallel.groups import DataGroups, shards, share_buffers
from litlab.parallel.tensors import copy_of, divided_like, tensors_of

HALVES = (torch.float16, torch.bfloat16)


class AveragedWeights(Callback):
    """Validate, test and save an average of the weights, from the first time that it is updated.

    Each process averages what it holds of the model. In checkpoints ``state_dict`` is the average, so that testing and
    loading need nothing special; the weights in training are under ``current_model_state``, as with Lightning's
    WeightAveraging. That (2.6.6) copies the whole model, which can't be done with one that is sharded; it validates,
    saves and ends with the untrained weights that it copied at the start, for as long as nothing is averaged; and it
    puts the weights in training, not the average, into the model when ``trainer.test(ckpt_path=...)`` follows ``fit``
    in the same process.

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
        self._aside: dict[str, Tensor] | None = None  # the weights in training, while the model has the average
        self._saved: dict[str, Tensor] = {}  # the average of a checkpoint that is read before the model is set up

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin anew; refuse other libraries' sharding, whose parts can't be put together for a checkpoint."""
        self.updates = 0
        if stage == "fit" and shards(trainer.strategy) and not isinstance(trainer.strategy, DataGroups):
            raise UserError(
                f"{self.section}: trainer.strategy {type(trainer.strategy).__name__} shards the weights in a way in "
                f"which they can't be averaged; use fsdp2, ddp or one device, or set {self.section} to null"
            )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Copy the weights, which are where the training will have them."""
        own = tensors_of(pl_module)
        self.average = {name: copy_of(value, torch.float32 if value.dtype in HALVES else None) for name, value in own}
        self._take_saved()

    def update(self, pl_module: nn.Module, share: float, buffers: bool) -> None:
        """Move the average towards the weights. The first update copies them.

        Args:
            pl_module: The model.
            share: Of the way.
            buffers: Whether buffers are averaged, too; if not, they are copied, as counters always are.
        """
        assert self.average is not None
        copied: tuple[list[Tensor], list[Tensor]] = ([], [])
        moved: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}  # those of one device and type, for a few kernels
        with torch.no_grad():
            for name, weight in tensors_of(pl_module):
                average = local_part(self.average[name])
                is_number = average.is_floating_point() or average.is_complex()
                is_moved = self.updates and is_number and (buffers or isinstance(weight, nn.Parameter))
                averages, weights = moved.setdefault((average.device, average.dtype), ([], [])) if is_moved else copied
                averages.append(average)
                weights.append(local_part(weight).to(average))
            for averages, weights in moved.values():
                torch._foreach_lerp_(averages, weights, share)  # pyright: ignore[reportPrivateImportUsage]
            copy_all(*copied)
        self.updates += 1

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the average into the model; of buffers that of the first process, as it is saved."""
        if self.average is not None and self.updates:
            self.exchange(pl_module)
            share_buffers(trainer)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the weights in training back."""
        if self._aside is not None:
            self.exchange(pl_module)

    def exchange(self, pl_module: nn.Module) -> None:
        """Put the average into the model, or the weights in training back if it has the average already."""
        assert self.average is not None
        if self._aside is None:
            self._aside = {name: copy_of(value) for name, value in tensors_of(pl_module)}
            _fill(pl_module, self.average)
        else:
            _fill(pl_module, self._aside)
            self._aside = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the average in the model."""
        if self.average is not None and self.updates:
            _fill(pl_module, self.average)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Save the average as ``state_dict``, the weights in training as ``current_model_state``."""
        if self.average is None:  # after a fit the model has it
            return
        weights = checkpoint["state_dict"]
        if self._aside is not None:
            weights = _state(trainer, pl_module, self._aside)
        checkpoint["current_model_state"] = weights
        if self.updates:
            checkpoint["state_dict"] = _state(trainer, pl_module, self.average)
        checkpoint["averaging_state"] = {"n_averaged": torch.tensor(self.updates)}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Restore average and weights to continue a fit; for all else the model has the average already."""
        if trainer.state.fn != "fit":
            return
        if "current_model_state" not in checkpoint:
            rank_zero_info(f"{self.section}: the checkpoint has no average, which begins with the weights.")
            return
        if self.state_key in checkpoint["callbacks"]:  # or it is an average of another kind
            self.updates = int(checkpoint["averaging_state"]["n_averaged"])
            names = {id(value): name for name, value in tensors_of(pl_module)}
            own = {key: names.get(id(value)) for key, value in pl_module.state_dict(keep_vars=True).items()}
            self._saved = {name: value for key, value in checkpoint["state_dict"].items() if (name := own.get(key))}
        weights = {"state_dict": checkpoint["current_model_state"]}
        trainer.strategy.load_model_state_dict(weights, strict=pl_module.strict_loading)
        if self.average is not None:
            self._take_saved()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Free the average: at the end of ``fit`` the model has it."""
        self.average, self._aside = None, None

    def _take_saved(self) -> None:
        assert self.average is not None
        for name, value in self._saved.items():
            mine = self.average[name]
            local_part(mine).copy_(local_part(divided_like(mine, value)))
        self._saved = {}


@torch.no_grad()
def _fill(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy values into parameters and buffers."""
    pairs = [(local_part(mine), local_part(values[name])) for name, mine in tensors_of(model)]
    copy_all([mine for mine, _ in pairs], [value for _, value in pairs])


def _state(trainer: Trainer, model: nn.Module, values: dict[str, Tensor]) -> dict[str, Any]:
    """Return the model's state_dict with other values of its parameters and buffers, as checkpoints have it."""
    names = {id(value): name for name, value in tensors_of(model)}
    state = model.state_dict(keep_vars=True)
    own = {key: values[names[id(value)]] if id(value) in names else value for key, value in state.items()}
    return trainer.strategy.gathered(own) if isinstance(trainer.strategy, DataGroups) else own
