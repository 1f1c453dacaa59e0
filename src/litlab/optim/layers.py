"""Which parameters of a network are the weights of its hidden layers, and which its embeddings and its last layer."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from litlab.optim.name_patterns import match_rules

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def member_networks(module: nn.Module) -> dict[str, nn.Module]:
    """Return the members of an ensemble by their dotted names; of a module that has none, nothing.

    Args:
        module: The ensemble, or a module that has it.
    """
    for name, part in module.named_modules():
        if getattr(part, "is_ensemble", False):
            members: Any = part.members
            return {f"{name}.members.{number}".lstrip("."): member for number, member in enumerate(members)}
    return {}


def last_layer(module: nn.Module) -> list[str]:
    """Return the names of the parameters of the layer with weights that is defined last, such as a classifier's head.

    Args:
        module: Layers are in the order of their definition. In an ensemble each member has a last layer.
    """
    layers = [(layer, name) for layer, name, _ in _owned(module)]
    last = []
    for network in member_networks(module).values() or [module]:
        own = [layer for layer, name, _ in _owned(network) if "weight" in name.rpartition(".")[2]]
        last += own[-1:]
    return [name for layer, name in layers if any(layer is one for one in last)]


def hidden_weights(module: nn.Module, others: Sequence[str] | None, key: str) -> list[str]:
    """Return the names of the weights that map hidden features to hidden features: matrices and banks of filters.

    A weight is a parameter of two or more dimensions whose name says so, as it does in all layers of torch. Positions,
    class tokens and the like have other names. Left out are weights of embeddings, also where another layer shares
    them, and those that are a vector but for their shape.

    Args:
        module: The network, or a module that has it.
        others: Patterns of names that do not count. None: those of the last layer.
        key: The setting that `others` is, for messages.

    Raises:
        UserError: If a pattern matches nothing.
    """
    owned = list(_owned(module))
    names = [name for _, name, _ in owned]
    left_out = set(last_layer(module) if others is None else match_rules(names, others, key))
    embeddings = {id(parameter) for layer, _, parameter in owned if isinstance(layer, EMBEDDINGS)}
    return [
        name
        for _, name, parameter in owned
        if "weight" in name.rpartition(".")[2]
        and min(len(parameter), parameter[:1].numel()) > 1
        and parameter.ndim > 1
        and id(parameter) not in embeddings
        and name not in left_out
    ]


def _owned(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Yield each parameter once for each layer that has it: the layer, the parameter's name, and itself."""
    for prefix, layer in module.named_modules():
        for name, parameter in layer.named_parameters(prefix, recurse=False):
            yield layer, name.replace("_fsdp_wrapped_module.", ""), parameter
