"""Muon for convolutions, SGD for everything else, in one optimizer."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

from litlab.optim import orthogonalise


class MuonSGD(Optimizer):
    """Orthogonalised momentum (Muon) for convolution filters, Nesterov SGD for matrices and vectors.

    Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) replaces the update of a layer by the nearest
    semi-orthogonal matrix, so that every direction is learned at the same speed. torch.optim.Muon takes matrices only;
    here a filter bank of shape (filters, channel, height, width) counts as a matrix of shape (filters, rest), and is
    kept at a norm of sqrt(filters), as its scale means nothing before a batch norm. Vectors (biases of norms) and
    matrices (the last layer) have learning rates of their own; a scheduler should scale all groups alike, as
    `WarmupDecay` does. The default rates suit `WhitenedCNN`, whose norms have no scale and whose logits are scaled
    down; a network without these needs far lower ones for matrices and vectors.

    Args:
        params: Parameters; the number of their dimensions decides their group.
        lr: Learning rate of convolution filters, relative to their norm.
        momentum: Momentum of convolution filters.
        matrix_lr: Learning rate of matrices.
        vector_lr: Learning rate of vectors and scalars.
        sgd_momentum: Momentum of matrices and vectors.
        weight_decay: Share of matrices and vectors that each step takes away at the peak learning rate.
        iterations: Newton-Schulz iterations of the orthogonalisation.

    Raises:
        ValueError: If a value is out of range, or there are no convolution filters (sharding hides their shape).
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.12,
        momentum: float = 0.6,
        matrix_lr: float = 0.4,
        vector_lr: float = 26.0,
        sgd_momentum: float = 0.85,
        weight_decay: float = 1e-3,
        iterations: int = 3,
    ) -> None:
        for name, value in (("lr", lr), ("matrix_lr", matrix_lr), ("vector_lr", vector_lr)):
            if value <= 0:
                raise ValueError(f"{name} is {value}: it must be above 0")
        for name, value in (("momentum", momentum), ("sgd_momentum", sgd_momentum)):
            if not 0 <= value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 0 and below 1")
        if weight_decay < 0 or iterations < 1:
            raise ValueError(f"weight_decay {weight_decay} must be 0 or more, iterations {iterations} 1 or more")
        params = list(params)
        filters = [p for p in params if p.ndim > 2]
        matrices = [p for p in params if p.ndim == 2]
        vectors = [p for p in params if p.ndim < 2]
        if not filters:
            raise ValueError("MuonSGD found no convolution filters, or a strategy that shards them: choose another one")
        sgd = {"momentum": sgd_momentum, "orthogonal": False}
        groups = [{"params": filters, "lr": lr, "momentum": momentum, "weight_decay": 0.0, "orthogonal": True}]
        groups += [
            {"params": group, "lr": rate, "weight_decay": weight_decay, **sgd}
            for group, rate in ((matrices, matrix_lr), (vectors, vector_lr))
            if group
        ]
        groups = [{**group, "peak_lr": group["lr"]} for group in groups]
        super().__init__(groups, {"iterations": iterations})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient.

        Args:
            closure: Computes the loss anew, with gradients; may be left out.

        Returns:
            The closure's loss, shape ().
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                if group["weight_decay"]:
                    gradient = gradient.add(parameter, alpha=group["weight_decay"] / group["peak_lr"])
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].mul_(group["momentum"]).add_(gradient)
                update = gradient.add(momentum, alpha=group["momentum"])  # Nesterov
                if group["orthogonal"]:
                    parameter.mul_(len(parameter) ** 0.5 / parameter.norm())
                    matrix = orthogonalise(update.flatten(1), group["iterations"])
                    update = matrix.view(update.shape).to(parameter.dtype)
                parameter.add_(update, alpha=-group["lr"])
        return loss
