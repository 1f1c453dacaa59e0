"""Muon for the hidden layers of a network, AdamW or SGD for the rest, in one optimizer."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from litlab.optim.foreach import add_all, lerp_all, lerped, scale_all
from litlab.optim.layers import hidden_weights
from litlab.optim.newton_schulz import orthogonalise
from litlab.types import HalfOpenUnitInterval, NonNegativeFloat, PositiveFloat, PositiveInt


class Muon(Optimizer):
    """Orthogonalised momentum (Muon) for the weights of hidden layers, AdamW or SGD for all other parameters.

    Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) replaces the update of a matrix by the nearest
    semi-orthogonal one, so that every direction is learned at the same speed. A bank of filters, (filters, channel,
    height, width), counts as a matrix of shape (filters, rest). Embeddings, the last layer, vectors and scalars are not
    matrices in that sense: they get AdamW.

    Updates have the size of AdamW's, 0.2 * sqrt(larger side) times the orthogonal matrix (Liu et al. 2025,
    arXiv:2502.16982, section 2.2), so learning rate and weight decay of an AdamW recipe stay as they are, and one
    schedule is right for all. That is ``adjust_lr_fn="match_rms_adamw"`` of torch.optim.Muon, which takes matrices only
    and leaves the others to a second optimizer.

    An optimizer sees no layers: `ExperimentModule` calls `divide` after it has built one, and so has a
    ``configure_optimizers`` of your own.

    Args:
        params: Parameters.
        lr: Learning rate.
        momentum: Momentum of the hidden weights, and of the rest with SGD; Nesterov's.
        weight_decay: As AdamW's: each step takes away this share of the weights, times the learning rate. With SGD it
            is added to the gradients of the rest.
        rest: What trains the other parameters.
        rest_lr: Learning rate of these. Left out, lr; SGD needs a higher one than AdamW.
        betas: AdamW's, for the mean of the gradients and of their squares.
        others: Patterns of the names of weights that the rest trains beside embeddings. Left out, those of the layer
            that is defined last.
        iterations: Newton-Schulz iterations of the orthogonalisation.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: PositiveFloat = 1e-3,
        momentum: HalfOpenUnitInterval = 0.95,
        weight_decay: NonNegativeFloat = 0.1,
        rest: Literal["adamw", "sgd"] = "adamw",
        rest_lr: PositiveFloat | None = None,
        betas: tuple[HalfOpenUnitInterval, HalfOpenUnitInterval] = (0.9, 0.999),
        others: list[str] | None = None,
        iterations: PositiveInt = 5,
    ) -> None:
        self._rest, self._rest_lr, self._others = rest, rest_lr, others
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "betas": tuple(betas)}
        super().__init__(params, {**defaults, "iterations": iterations, "method": ""})

    def divide(self, module: nn.Module) -> None:
        """Divide each group into hidden weights and the rest.

        Args:
            module: Its layers have the parameters.

        Raises:
            UserError: If a pattern of ``others`` matches nothing.
            ValueError: If there are no hidden weights, or they are sharded.
        """
        chosen = set(hidden_weights(module, self._others, "model.optimizer.others"))
        hidden = {id(parameter) for name, parameter in module.named_parameters() if name in chosen}
        groups = list(self.param_groups)
        trained = [parameter for group in groups for parameter in group["params"]]
        if any(isinstance(parameter, DTensor) for parameter in trained) or not hidden & set(map(id, trained)):
            raise ValueError(
                "Muon finds no whole weights of hidden layers: the network has none, or trainer.strategy shards them; "
                "choose another optimizer, or a strategy that does not shard, such as ddp"
            )
        self.param_groups.clear()
        for group in groups:
            parts = {"muon": [], self._rest: []}
            for parameter in group["params"]:
                parts["muon" if id(parameter) in hidden else self._rest].append(parameter)
            for method, parameters in parts.items():
                if not parameters:
                    continue
                own = {"params": parameters, "method": method}
                if method != "muon" and self._rest_lr is not None:
                    own |= {"lr": self._rest_lr, "lr_scale": self._rest_lr / group["lr"]}
                self.add_param_group({**group, **own})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient.

        Args:
            closure: Computes the loss anew, with gradients; may be left out.

        Returns:
            The closure's loss, shape ().

        Raises:
            RuntimeError: If `divide` was not called.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if not group["method"]:
                raise RuntimeError("Muon does not know the layers: call optimizer.divide(module) after building it")
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                {"muon": self._muon, "adamw": self._adamw, "sgd": self._sgd}[group["method"]](group, parameters)
        return loss

    def _muon(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        gradients = _gradients(parameters)
        (momenta,) = self._buffers(parameters, "momentum_buffer")
        lerp_all(momenta, gradients, 1 - group["momentum"])
        updates = lerped(gradients, momenta, group["momentum"])  # Nesterov
        scale_all(parameters, 1 - group["lr"] * group["weight_decay"])
        same_shape: dict[tuple[int, int], list[int]] = {}
        for number, parameter in enumerate(parameters):
            same_shape.setdefault((len(parameter), parameter[0].numel()), []).append(number)
        for shape, numbers in same_shape.items():
            matrices = [updates[number].flatten(1) for number in numbers]
            if len(matrices) > 1:
                matrices = orthogonalise(torch.stack(matrices), group["iterations"]).unbind()
            else:
                matrices = [orthogonalise(matrices[0], group["iterations"])]
            changed = [parameters[number] for number in numbers]
            moves = [m.reshape(p.shape).to(p.dtype) for m, p in zip(matrices, changed, strict=True)]
            add_all(changed, moves, -group["lr"] * 0.2 * max(shape) ** 0.5)

    def _adamw(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        means, squares = self._buffers(parameters, "exp_avg", "exp_avg_sq")
        for parameter in parameters:
            self.state[parameter].setdefault("step", torch.tensor(0.0))
        adamw(
            parameters, _gradients(parameters), means, squares, [], [self.state[p]["step"] for p in parameters],
            amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
            weight_decay=group["weight_decay"], eps=1e-8, maximize=False,
        )  # fmt: skip

    def _sgd(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        (momenta,) = self._buffers(parameters, "momentum_buffer")
        sgd(
            parameters, _gradients(parameters), list[Tensor | None](momenta), weight_decay=group["weight_decay"],
            momentum=group["momentum"], lr=group["lr"], dampening=0.0, nesterov=group["momentum"] > 0, maximize=False,
        )  # fmt: skip

    def _buffers(self, parameters: list[Tensor], *names: str) -> list[list[Tensor]]:
        """Return tensors of the state by name, each shaped like its parameter; zeros at first."""
        for parameter in parameters:
            state = self.state[parameter]
            for name in names:
                if name not in state:
                    state[name] = torch.zeros_like(parameter)
        return [[self.state[parameter][name] for parameter in parameters] for name in names]


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(gradient.is_sparse for gradient in gradients):
        raise RuntimeError("Muon does not support sparse gradients")
    return gradients
