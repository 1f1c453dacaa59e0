"""Parameters by the kind of layer that has them."""

from collections import Counter
from collections.abc import Iterable
from os.path import commonprefix

from torch import nn

from litlab.nn.ensemble import split_members


def summarise(names: Iterable[str]) -> str:
    """Return names in short: how many there are in each part of the network."""
    words = [name.split(".") for name in names]
    length = max(2, len(commonprefix(words)))  # noqa: RUF071 - of lists
    counts = Counter(".".join(name[:length]) for name in words)
    return ", ".join(part if count == 1 else f"{part} ({count})" for part, count in counts.items())


def last_layer(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of the layer with weights that is defined last, such as a classifier's head.

    In an ensemble each member has a last layer.
    """
    parameters = []
    for network in split_members(module):
        layers = [layer for layer in network.modules() if any(map(is_weight, layer._parameters))]
        for layer in layers[-1:]:
            parameters += layer.parameters(recurse=False)
    return parameters


def hidden_weights(module: nn.Module) -> set[nn.Parameter]:
    """Return the weights that map hidden features to hidden features: matrices and banks of filters.

    A weight is a parameter of two or more dimensions whose name says so, as it does in all layers of torch. Positions,
    class tokens and the like have other names. Left out are weights of the last layer and of embeddings, also where
    another layer shares them, and those that are a vector but for their shape.
    """
    embeddings = [layer.weight for layer in module.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]
    weights = [parameter for name, parameter in module.named_parameters() if is_weight(name) and parameter.ndim > 1]
    matrices = {weight for weight in weights if min(len(weight), weight[:1].numel()) > 1}
    return matrices.difference(last_layer(module), embeddings)


def is_weight(name: str) -> bool:
    """Return whether the name of a parameter, such as ``head.weight``, is that of a layer's weight."""
    return "weight" in name.rpartition(".")[2]
