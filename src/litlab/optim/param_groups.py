"""Parameters by their names and layers: learning rates and weight decay that differ within a
network.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from os.path import commonprefix
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from litlab.nn.ensemble import split_members
from litlab.nn.selection import select_parameters
from litlab.types import NonNegativeFloat, OpenUnitInterval, PositiveFloat


@dataclass
class GroupRule:
    """Settings for parameters with matching names.

    Args:
        params: Pattern of names, or several, as `fit --check` lists them; see
            `litlab.nn.selection`.
        lr_scale: Factor on the optimizer's learning rate.
        weight_decay: Replaces the optimizer's.
    """

    params: str | list[str]
    lr_scale: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat | None = None


@dataclass
class ParamGroups:
    """How an optimizer's settings differ from parameter to parameter.

    The optimizer is built as usual; then each of its groups (`Muon` has several) is divided. So
    this works with every optimizer that takes groups, and every schedule keeps the ratios between
    their rates.

    Args:
        rules: The first rule that matches a parameter applies.
        layer_decay: Factor from each layer's learning rate to that of the layer before it, above 0
            and below 1. The last layer has the optimizer's own rate (Howard and Ruder 2018,
            arXiv:1801.06146). Multiplied with the rules' lr_scale. Layers are the parts of the
            model's network in the order of their definition; those of a Sequential or ModuleList
            count separately, and parts with only norms and biases belong to the part before.
        decay_norms_and_biases: Whether weight decay applies to vectors and scalars, such as biases
            and the weights of norms, too.
    """

    rules: list[GroupRule] = field(default_factory=list)
    layer_decay: OpenUnitInterval | None = None
    decay_norms_and_biases: bool = True

    def divide(self, optimizer: Optimizer, module: nn.Module) -> None:
        """Divide the groups of a new optimizer.

        Each group gets ``lr_scale``, the factor that is already in its learning rate.

        Args:
            optimizer: It has no state yet, and no schedule.
            module: Knows the names of the parameters.

        Raises:
            UserError: If a pattern matches nothing.
        """
        rule_of = {}
        # The first one that matches is written last
        for number, rule in reversed(list(enumerate(self.rules))):
            selected = select_parameters(module, rule.params, f"model.param_groups.rules[{number}]")
            rule_of |= dict.fromkeys(selected.values(), rule)
        scale_of = {} if self.layer_decay is None else _layer_scales(module, self.layer_decay)

        def settings_of(parameter: nn.Parameter, group: dict[str, Any]) -> dict[str, Any]:
            rule = rule_of.get(parameter, GroupRule("*"))
            scale = rule.lr_scale * scale_of.get(parameter, 1.0)
            decay = rule.weight_decay
            if decay is None:
                decayed = self.decay_norms_and_biases or parameter.ndim > 1
                decay = group.get("weight_decay", 0.0) if decayed else 0.0
            return {
                "lr": group["lr"] * scale,
                "lr_scale": group.get("lr_scale", 1.0) * scale,
                "weight_decay": decay,
            }

        divide_groups(optimizer, settings_of)


def divide_groups(
    optimizer: Optimizer, settings_of: Callable[[nn.Parameter, dict[str, Any]], dict[str, Any]]
) -> None:
    """Divide each group of a new optimizer into groups of equal settings.

    Args:
        optimizer: It has no state yet.
        settings_of: Returns what is different for a parameter of a group; numbers, words and the
            like.
    """
    groups = list(optimizer.param_groups)
    optimizer.param_groups.clear()
    for group in groups:
        # A rate may be a tensor, as optimizers with a compiled step have it: its value is compared,
        # and each new group gets one of its own.
        rate = group["lr"]
        number = float(rate)
        parts = defaultdict(list)
        for parameter in group["params"]:
            parts[tuple(settings_of(parameter, {**group, "lr": number}).items())].append(parameter)
        for settings, parameters in parts.items():
            new = {**group, "lr": number, **dict(settings), "params": parameters}
            if isinstance(rate, torch.Tensor):
                new["lr"] = torch.full_like(rate, new["lr"])
            optimizer.add_param_group(new)


def find_peak(group: dict[str, Any]) -> float:
    """Return the learning rate that the schedule of a group scales, or the peak of OneCycleLR."""
    return float(group.get("max_lr", group.get("initial_lr", group["lr"])))


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the learning rate of a group of an optimizer's parameters, in place where it is a
    tensor.
    """
    if isinstance(group["lr"], torch.Tensor):  # optimizers with a compiled step insist on theirs
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _layer_scales(module: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """Return the factor of each parameter of a model's network; each member of an ensemble has the
    same layers.
    """
    scales = {}
    for network in split_members(getattr(module, "network", module)):
        for distance, layer in enumerate(reversed(_find_layers(network))):
            scales |= dict.fromkeys(layer, decay**distance)
    return scales


def _find_layers(network: nn.Module) -> list[list[nn.Parameter]]:
    """Return the parameters of each layer, in the order of their definition."""
    lists = nn.Sequential | nn.ModuleList
    total = sum(map(torch.numel, network.parameters()))

    # Such as a list of blocks, or the encoder that has it
    def holds_layers(part: nn.Module) -> bool:
        is_most = 2 * sum(map(torch.numel, part.parameters())) > total
        return isinstance(part, lists) or (
            is_most and any(isinstance(child, lists) for child in part.modules())
        )

    containers = {name for name, part in network.named_modules() if holds_layers(part)}
    parts = defaultdict(list)
    for name, parameter in network.named_parameters():
        part = next(
            part for part in accumulate(name.split("."), "{}.{}".format) if part not in containers
        )
        parts[part].append(parameter)

    layers: list[list[nn.Parameter]] = []
    for part in parts.values():
        if layers and all(parameter.ndim < 2 for parameter in part):  # only norms and biases
            layers[-1] += part
        else:
            layers.append(part)
    return layers


def summarise(names: Iterable[str]) -> str:
    """Return names in short: how many there are in each part of the network."""
    words = [name.split(".") for name in names]
    length = max(2, len(commonprefix(words)))  # noqa: RUF071 - of lists
    counts = Counter(".".join(name[:length]) for name in words)
    return ", ".join(part if count == 1 else f"{part} ({count})" for part, count in counts.items())


def last_layer(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of the layer with weights that is defined last, such as a classifier's
    head.

    In an ensemble each member has a last layer.
    """
    parameters = []
    for network in split_members(module):
        layers = [
            layer
            for layer in network.modules()
            if any(is_weight(name) for name, _ in layer.named_parameters(recurse=False))
        ]
        for layer in layers[-1:]:
            parameters += layer.parameters(recurse=False)
    return parameters


def hidden_weights(module: nn.Module) -> set[nn.Parameter]:
    """Return the weights that map hidden features to hidden features: matrices and banks of
    filters.

    A weight is a parameter of two or more dimensions whose name says so, as it does in all layers
    of torch. Positions, class tokens and the like have other names. Left out are weights of the
    last layer and of embeddings, also where another layer shares them, and those that are a vector
    but for their shape.
    """
    embeddings = [
        layer.weight
        for layer in module.modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag)
    ]
    weights = [
        parameter
        for name, parameter in module.named_parameters()
        if is_weight(name) and parameter.ndim > 1
    ]
    matrices = {weight for weight in weights if min(len(weight), weight[:1].numel()) > 1}
    return matrices.difference(last_layer(module), embeddings)


def is_weight(name: str) -> bool:
    """Return whether the name of a parameter, such as ``head.weight``, is that of a layer's
    weight.
    """
    return "weight" in name.rpartition(".")[2]
