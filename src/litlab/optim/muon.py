"""Muon for the hidden layers of a network, AdamW or SGD for the rest, in one optimizer."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import SGD, AdamW, Optimizer

from litlab.errors import UserError
from litlab.optim.param_groups import divide_groups, hidden_weights
from litlab.types import HalfOpenUnitInterval, NonNegativeFloat, PositiveFloat, PositiveInt
from litlab.util.device import has_fast_bfloat16


class Muon(Optimizer):
    """Orthogonalised momentum (Muon) for the weights of hidden layers, AdamW or SGD for all other
    parameters.

    Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) replaces the update of a
    matrix by the nearest semi-orthogonal one, so that every direction is learned at the same speed.
    A bank of filters, (filters, channel, height, width), counts as a matrix of shape (filters,
    rest). Embeddings, the last layer, vectors and scalars are not matrices in that sense: they are
    the rest.

    Updates have the size of AdamW's, 0.2 * sqrt(larger side) times the orthogonal matrix (Liu et
    al. 2025, arXiv:2502.16982, section 2.2), so you can keep the learning rate and weight decay of
    an AdamW recipe, and one schedule suits all parameters. That is
    ``adjust_lr_fn="match_rms_adamw"`` of torch.optim.Muon, which takes matrices only and leaves the
    others to a second optimizer.

    An optimizer does not know the layers: `ExperimentModule` calls `divide` after building it, and
    your own ``configure_optimizers`` must do so, too.

    Args:
        params: Parameters.
        lr: Learning rate of the hidden weights.
        momentum: Nesterov's, of the hidden weights.
        weight_decay: As in AdamW: each step removes this share of the weights, times the learning
            rate. With SGD, it is added to the gradients of the rest.
        unit_norm: Keep each hidden weight at a norm of sqrt(rows), instead of weight decay, and
            don't scale its update: lr is then the angle of a step. For layers before a norm, where
            the size of weights does not matter.
        rest: Optimizer of the other parameters.
        rest_lr: Their learning rate, by default lr; SGD needs a higher one than AdamW.
        vector_lr: Learning rate of the vectors and scalars among them, such as biases, by default
            rest_lr. Their weight decay is divided by the same factor by which their rate is higher.
        rest_momentum: Nesterov's, of the rest with SGD.
        iterations: Newton-Schulz iterations of the orthogonalisation.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: PositiveFloat = 1e-3,
        momentum: HalfOpenUnitInterval = 0.95,
        weight_decay: NonNegativeFloat = 0.1,
        unit_norm: bool = False,
        rest: Literal["adamw", "sgd"] = "adamw",
        rest_lr: PositiveFloat | None = None,
        vector_lr: PositiveFloat | None = None,
        rest_momentum: HalfOpenUnitInterval = 0.95,
        iterations: PositiveInt = 5,
    ) -> None:
        # torch's own optimizer steps the rest, in their groups and with the state of this one.
        nothing = [torch.zeros(1)]
        self._rest = (
            SGD(nothing, momentum=rest_momentum, nesterov=True) if rest == "sgd" else AdamW(nothing)
        )
        self._rest_lr, self._vector_lr = rest_lr, vector_lr
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "unit_norm": unit_norm,
            "iterations": iterations,
            "method": "",
        }
        super().__init__(params, defaults)

    def divide(self, module: nn.Module) -> None:
        """Divide each group into hidden weights and the rest.

        Args:
            module: Its layers have the parameters.

        Raises:
            UserError: If there are no hidden weights, or they are sharded.
        """
        hidden = hidden_weights(module)
        trained = hidden & {
            parameter for group in self.param_groups for parameter in group["params"]
        }
        if not trained or any(isinstance(parameter, DTensor) for parameter in trained):
            raise UserError(
                "model.optimizer: Muon finds no complete weights of hidden layers: the network "
                "has none, or trainer.strategy shards them; choose another optimizer, or a "
                "strategy that does not shard, such as ddp"
            )
        rest = type(self._rest).__name__.lower()

        def settings_of(parameter: nn.Parameter, group: dict[str, Any]) -> dict[str, Any]:
            if parameter in hidden:
                return {"method": "muon"}
            matrix_lr = self._rest_lr or group["lr"]
            lr = matrix_lr if parameter.ndim > 1 else self._vector_lr or matrix_lr
            decay = group["weight_decay"] * (matrix_lr / lr)
            rates = {"lr": lr, "lr_scale": lr / group["lr"], "weight_decay": decay}
            return {**self._rest.defaults, **rates, "method": rest}

        divide_groups(self, settings_of)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient.

        Args:
            closure: Computes the loss anew, with gradients; may be left out.

        Returns:
            The closure's loss, shape ().
        """
        loss = None if closure is None else torch.enable_grad()(closure)()
        self._rest.param_groups = [
            group for group in self.param_groups if group["method"] != "muon"
        ]
        self._rest.state = self.state
        self._rest.step()
        for group in self.param_groups:
            if group["method"] == "muon":
                self._step_hidden(group)
        return loss

    def _step_hidden(self, group: dict[str, Any]) -> None:
        lr, momentum = group["lr"], group["momentum"]
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            buffer = state["momentum_buffer"].mul_(momentum).add_(parameter.grad)
            update = parameter.grad.add(buffer, alpha=momentum).flatten(1)  # Nesterov
            if group["unit_norm"]:
                parameter.mul_(len(parameter) ** 0.5 / parameter.norm())
                size = 1.0
            else:
                parameter.mul_(1 - lr * group["weight_decay"])
                size = 0.2 * max(update.shape) ** 0.5
            matrix = orthogonalise(update, group["iterations"])
            parameter.add_(matrix.reshape(parameter.shape), alpha=-lr * size)


def orthogonalise(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Return a matrix of the same singular vectors whose singular values are near 1.

    The quintic Newton-Schulz iteration with Jordan's coefficients
    (https://kellerjordan.github.io/posts/muon/): they do not converge, but bring every singular
    value into about 0.7 to 1.2 within five iterations, with matrix products alone. bfloat16 is
    exact enough; float32 is used where the device has no fast bfloat16.

    Args:
        matrix: Shape (rows, columns).
        iterations: Fewer leave small singular values smaller.

    Returns:
        bfloat16 or float32, of the same shape.
    """
    x = matrix.to(torch.bfloat16 if has_fast_bfloat16(matrix.device) else torch.float32)
    x = x / (torch.linalg.vector_norm(x) + 1e-7)  # singular values must start at 1 or below
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(iterations):
        gram = x @ x.T
        polynomial = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, polynomial, x, beta=3.4445)
    return x.T if tall else x
