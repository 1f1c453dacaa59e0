"""Ready-made networks: with pre-trained weights, fitted to other images and classes, built again
without weights.
"""

import copy
import http.client
import pickle
import sys
from pathlib import Path
from typing import Any, Literal
from zipfile import is_zipfile

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn

from litlab.errors import UserError, first_line
from litlab.util.checksums import check_archive
from litlab.util.files import socket_timeout


def pretrained(
    name: str, weights: str | None = "DEFAULT", fallback: Literal["random"] | None = None
) -> nn.Module:
    """Build a network of torchvision, with weights that were trained on ImageNet.

    Args:
        name: The network, such as resnet18.
        weights: Which of its weights, such as IMAGENET1K_V1. null: random ones.
        fallback: `random` takes random weights where the others can't be downloaded, and says so;
            null stops there.

    Returns:
        The network. Its attribute ``stand_in`` says so where its weights are random in place of
        others.

    Raises:
        UserError: There are no such weights, they can't be downloaded and there is no fallback, or
            their file holds other things.
    """
    from torchvision.models import get_model, get_model_weights

    if weights is None:
        return get_model(name, weights=None)
    entries = get_model_weights(name).__members__
    if weights not in entries:
        raise UserError(
            f"model.network.weights: {name} has no {weights}; choose one of {', '.join(entries)}"
        )
    entry: Any = entries[weights]
    url = entry.url
    file = f"{torch.hub.get_dir()}/checkpoints/{url.rpartition('/')[2]}"
    try:
        with socket_timeout(10):  # for the next bytes; without it, for ever
            # torchvision unpickles what lies in torch.hub's folder: first see that there are
            # weights in it alone.
            entry.get_state_dict(progress=sys.stderr.isatty(), check_hash=True, weights_only=True)
        if is_zipfile(file):  # the oldest ones have another format, without checksums
            check_archive(Path(file))
        return get_model(name, weights=entry)
    except (pickle.UnpicklingError, ValueError) as error:
        raise UserError(
            f"{file}: it contains something other than weights, or is damaged; delete it"
        ) from error
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = first_line(Exception(getattr(error, "reason", error)))
        remedy = f"save {url} as {file}"
        if fallback is None:
            raise UserError(
                f"model.network.weights: {weights} of {name} can't be downloaded ({reason}); "
                f"{remedy}, or set fallback: random"
            ) from error
        network = get_model(name, weights=None)
        network.stand_in = f"RANDOM, not pre-trained: {weights} of {name} can't be downloaded"  # pyright: ignore[reportArgumentType]
        rank_zero_warn(
            f"The weights are {network.stand_in} ({reason}). To get the real ones, {remedy}."
        )
        return network


def adapt_network(
    network: nn.Module, image_shape: tuple[int, int, int], num_classes: int
) -> nn.Module:
    """Adapt the first convolution to the images' channels and the last layer to the classes, where
    they do not fit.

    Pre-trained weights stay: a first convolution for other channels gets their mean over the
    channels, scaled so that a grey image gives the response that it gave before.

    Args:
        network: Takes images of shape (batch, channel, height, width).
        image_shape: Channels, height and width.
        num_classes: Number of logits.

    Returns:
        The same network, changed in place.

    Raises:
        UserError: If the network can't take such images, or does not return logits of shape (batch,
            num_classes).
    """
    kind, channels = type(network).__name__, image_shape[0]
    layers = [
        (name, layer)
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    first = layers[0][1] if layers else None
    try:
        outputs = _run(network, image_shape)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        if not isinstance(first, nn.Conv2d) or first.groups > 1 or first.in_channels == channels:
            raise UserError(
                f"model.network: {kind} can't take images of {image_shape} ({first_line(error)}); "
                "correct it (LITLAB_TRACEBACK=1 shows where), or set data.image_size or data.mode "
                "to what it expects"
            ) from error
        weight = first.weight.detach().mean(dim=1, keepdim=True) * (first.in_channels / channels)
        first.weight = nn.Parameter(weight.repeat(1, channels, 1, 1))
        first.in_channels = channels
        outputs = _run(network, image_shape)

    shape = (2, num_classes)
    if layers and isinstance(outputs, Tensor) and outputs.shape != shape:
        name, last = layers[-1]
        if isinstance(last, nn.Linear):
            fitted = nn.Linear(last.in_features, num_classes, bias=last.bias is not None)
        else:  # SqueezeNet ends in a 1 x 1 convolution
            fitted = nn.Conv2d(last.in_channels, num_classes, kernel_size=1)
        network.set_submodule(name, fitted)
        outputs = _run(network, image_shape)
    if not isinstance(outputs, Tensor) or outputs.shape != shape:
        raise UserError(
            f"model.network: {kind} does not return logits of shape {shape} for 2 images; turn off "
            "its auxiliary outputs, choose a classifier, or write your own task (docs/own_task.md)"
        )
    return network


@torch.no_grad()
def _run(network: nn.Module, image_shape: tuple[int, int, int]) -> object:
    """Return what a copy of the network, whose batch norms may count, returns for two black images
    in training.
    """
    twin = copy.deepcopy(network).train()  # where auxiliary outputs show
    return twin(
        torch.zeros(2, *image_shape, device=next(twin.parameters(), torch.zeros(())).device)
    )


def forget_weights(settings: Any) -> None:
    """Let the settings of a network build it without pre-trained weights, as a checkpoint holds its
    own.
    """
    if "weights" in settings:
        settings["weights"] = None
    if settings.get("pretrained") is True:  # timm's
        settings["pretrained"] = False
