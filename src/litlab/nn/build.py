"""Make several networks of what a model is given: a network, a class or function, or a config's block."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from jsonargparse import ArgumentParser
from torch import nn


def build_networks(network: nn.Module | Callable[[], nn.Module], count: int, block: Any) -> list[nn.Module]:
    """Return several networks of one kind, each with its own initialisation.

    Args:
        network: A network, or what makes one.
        count: How many there are to be.
        block: The block of the config (``class_path`` and ``init_args``) that a network was made from. Without it they
            are copies of the network, which is right only where weights are loaded next: see `same_weights`.
    """
    if not isinstance(network, nn.Module):
        return [network() for _ in range(count)]
    make = (lambda: _built(block)) if isinstance(block, dict) else lambda: copy.deepcopy(network)
    return [network, *(make() for _ in range(count - 1))]


def same_weights(networks: list[nn.Module]) -> bool:
    """Return whether networks all have the same weights, so that they would learn the same."""
    first, *others = ([p.detach() for p in network.parameters()] for network in networks)
    return all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def _built(block: dict[str, Any]) -> nn.Module:
    parser = ArgumentParser()
    parser.add_argument("--network", type=nn.Module)
    return parser.instantiate_classes(parser.parse_object({"network": block}))["network"]
