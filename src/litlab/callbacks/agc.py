"""Adaptive gradient clipping."""
# pyright: reportPrivateImportUsage=false

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from litlab.callbacks.gradients import check_gradients
from litlab.errors import UserError
from litlab.nn.selection import select_parameters
from litlab.optim.parameters import last_layer
from litlab.types import PositiveFloat


class AGC(Callback):
    """Clip the gradient of each unit of a layer to a share of the norm of the unit's weights.

    A unit is a row of a matrix, a filter, or a whole vector: what feeds one output. Its gradient g is scaled by
    factor * max(|w|, eps) / |g| where that is below 1 (Brock et al. 2021, arXiv:2102.06171, section 4.1, where it
    replaces batch norms in training with large batches). The last layer is left alone, as there. Nothing waits for the
    device.

    Args:
        factor: Largest norm of a unit's gradient, as a share of the norm of its weights. 0.01 in the paper for batches
            of 4,096 and SGD; smaller batches take larger ones.
        eps: Least norm that weights are taken to have, so that those that start at zero can grow.
        exclude: Patterns of the names of parameters that are not clipped. Left out, the layer that is defined last.

    Raises:
        UserError: In a fit, if a pattern matches nothing, the Trainer clips too, or the gradients are sharded or
            not yet unscaled.
    """

    def __init__(
        self, factor: PositiveFloat = 0.01, eps: PositiveFloat = 1e-3, exclude: list[str] | None = None
    ) -> None:
        self.factor, self.eps, self.exclude = factor, eps, exclude
        self._excluded: set[int] = set()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a Trainer that clips."""
        if stage == "fit" and trainer.gradient_clip_val is not None:
            raise UserError(
                f"agc: trainer.gradient_clip_val is {trainer.gradient_clip_val} and clips gradients too; set "
                "trainer.gradient_clip_val or agc to null"
            )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse what it can't work with, and find the parameters that are left alone."""
        check_gradients(trainer, "agc")
        if self.exclude is None:
            excluded = last_layer(pl_module)
        else:
            excluded = select_parameters(pl_module, self.exclude, "agc.exclude").values()
        self._excluded = set(map(id, excluded))

    @torch.no_grad()
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Scale the gradients."""
        clipped = [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and id(parameter) not in self._excluded
        ]
        if clipped:
            gradients = [parameter.grad for parameter in clipped]
            norms, most = ([_unit_norms(tensor) for tensor in tensors] for tensors in (gradients, clipped))
            torch._foreach_clamp_min_(most, self.eps)
            torch._foreach_mul_(most, self.factor)
            torch._foreach_clamp_min_(norms, 1e-6)
            torch._foreach_div_(most, norms)
            torch._foreach_clamp_max_(most, 1.0)
            torch._foreach_mul_(gradients, most)


def _unit_norms(tensor: Tensor) -> Tensor:
    """Return the norm of each unit, in a shape that is broadcast over it: (units, 1, ...), or () of a vector."""
    dims = tuple(range(1, tensor.ndim)) or None
    return torch.linalg.vector_norm(tensor, dim=dims, keepdim=tensor.ndim > 1, dtype=torch.float32)
