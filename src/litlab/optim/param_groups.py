"""Parameter groups by name: learning rates and weight decay that differ within a network."""

from dataclasses import dataclass, field
from itertools import groupby

from torch import nn
from torch.optim import LBFGS, Optimizer

from litlab.errors import UserError
from litlab.optim.layers import member_networks
from litlab.optim.name_patterns import match_rules, named_parameters
from litlab.types import NonNegativeFloat, OpenUnitInterval, PositiveFloat


@dataclass
class GroupRule:
    """What differs for the parameters whose names match.

    Args:
        params: Pattern of names, or several, as `fit --check` lists them. ``*`` stands for anything; the name of a
            module, such as network.layer4, for all parameters in it.
        lr_scale: Factor on the optimizer's learning rate.
        weight_decay: In place of the optimizer's.
    """

    params: str | list[str]
    lr_scale: PositiveFloat = 1.0
    weight_decay: NonNegativeFloat | None = None


@dataclass
class ParamGroups:
    """How an optimizer's settings differ from parameter to parameter.

    The optimizer is built as without groups; then each of its own groups (`MuonSGD` has three) is divided. So this
    works with every optimizer that takes groups, and every schedule keeps the ratios between their rates.

    Args:
        rules: The first one that matches a parameter counts.
        layer_decay: Factor from each layer's learning rate to that of the layer before it, above 0 and below 1. The
            last layer has the optimizer's own rate (Howard and Ruder 2018, arXiv:1801.06146). Multiplied with the
            rules' lr_scale.
        layers: Patterns for each layer, from input to output. Left out, the parts of the model's network in the order
            of their definition; those of a Sequential or ModuleList count one by one, and parts with only norms and
            biases belong to the part before.
        decay_norms_and_biases: Whether weight decay applies to vectors and scalars, such as biases and the weights of
            norms, too.
    """

    rules: list[GroupRule] = field(default_factory=list)
    layer_decay: OpenUnitInterval | None = None
    layers: list[str | list[str]] | None = None
    decay_norms_and_biases: bool = True

    def divide(self, optimizer: Optimizer, module: nn.Module) -> None:
        """Divide the groups of a new optimizer.

        Each group gets ``lr_scale``, the factor that is already in its learning rate.

        Args:
            optimizer: It has no state yet, and no schedule.
            module: Knows the names of the parameters.

        Raises:
            UserError: If a pattern matches nothing, or the optimizer takes no groups.
        """
        if isinstance(optimizer, LBFGS):
            raise UserError("model.param_groups: LBFGS takes all parameters in one group; choose another optimizer")
        names = {parameter: name for name, parameter in named_parameters(module).items()}
        known = list(names.values())
        rule_of = match_rules(known, [rule.params for rule in self.rules], "model.param_groups.rules")
        layer_scale = self._layer_scales(module, known)

        def settings(parameter: nn.Parameter, group: dict) -> tuple[float, float | None]:
            name = names[parameter]
            rule = self.rules[rule_of[name]] if name in rule_of else GroupRule("")
            decay = group.get("weight_decay")
            if rule.weight_decay is not None:
                decay = rule.weight_decay
            elif not self.decay_norms_and_biases and parameter.ndim < 2 and decay is not None:
                decay = 0.0
            return rule.lr_scale * layer_scale.get(name, 1.0), decay

        groups = list(optimizer.param_groups)
        optimizer.param_groups.clear()
        for group in groups:
            parts: dict[tuple[float, float | None], list[nn.Parameter]] = {}
            for parameter in group["params"]:
                parts.setdefault(settings(parameter, group), []).append(parameter)
            for (scale, decay), parameters in parts.items():
                total = scale * group.get("lr_scale", 1.0)  # `Muon` has a group with a rate of its own
                changed = {"params": parameters, "lr": group["lr"] * scale, "lr_scale": total}
                optimizer.add_param_group({**group, **changed, **({} if decay is None else {"weight_decay": decay})})

    def _layer_scales(self, module: nn.Module, names: list[str]) -> dict[str, float]:
        """Return the factor of each parameter that is in a layer."""
        if self.layer_decay is None:
            if self.layers is not None:
                raise UserError("model.param_groups.layers: they have no effect; set layer_decay too")
            return {}
        layers = _parts(module) if self.layers is None else self.layers
        layer_of = match_rules(names, layers, "model.param_groups.layers")
        return {name: self.layer_decay ** (len(layers) - 1 - layer) for name, layer in layer_of.items()}


def _parts(module: nn.Module) -> list[str | list[str]]:
    """Return the names of the parameters in each part of a model's network, in the order of their definition.

    Raises:
        UserError: It is an ensemble.
    """
    network = getattr(module, "network", module)
    if member_networks(network):
        raise UserError(
            "model.param_groups.layer_decay: the layers of several networks (model.members) have no common order; set "
            "model.param_groups.layers, such as [network.members.*.0, network.members.*.1]"
        )
    prefix = "network." if network is not module else ""
    vectors = {name for name, parameter in network.named_parameters() if parameter.ndim < 2}
    parts: list[list[str]] = []
    for _, group in groupby((name for name, _ in network.named_parameters()), lambda name: _part(network, name)):
        part = list(group)
        if parts and vectors.issuperset(part):
            parts[-1] += [prefix + name for name in part]
        else:
            parts.append([prefix + name for name in part])
    return list(parts)


def _part(network: nn.Module, name: str) -> str:
    """Return the part that a parameter is in: a child of the network, or of a container in it."""
    words = name.split(".")
    depth = 1
    while depth < len(words) and isinstance(
        network.get_submodule(".".join(words[:depth])), nn.Sequential | nn.ModuleList
    ):
        depth += 1
    return ".".join(words[:depth])
