"""Networks of torchvision with pre-trained weights, where these can be had."""

import http.client
import pickle
import sys
from typing import Literal

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn

from litlab.errors import UserError, first_line
from litlab.util.files import socket_timeout


def pretrained(name: str, weights: str | None = "DEFAULT", fallback: Literal["random"] | None = None) -> nn.Module:
    """Build a network of torchvision, with weights that were trained on ImageNet.

    Args:
        name: The network, such as resnet18.
        weights: Which of its weights, such as IMAGENET1K_V1. null: random ones.
        fallback: `random` takes random weights where the others can't be downloaded, and says so; null stops there.

    Returns:
        The network. Its attribute ``stand_in`` says so where its weights are random in place of others.

    Raises:
        UserError: The weights can't be downloaded and there is no fallback, or their file holds other things.
    """
    from torchvision.models import get_model, get_model_weights

    if weights is None:
        return get_model(name, weights=None)
    known = get_model_weights(name)[weights]  # pyright: ignore[reportIndexIssue]
    url = known.url
    file = f"{torch.hub.get_dir()}/checkpoints/{url.rpartition('/')[2]}"
    try:
        with socket_timeout(10):  # for the next bytes; without it, for ever
            # torchvision unpickles what lies in torch.hub's folder: first see that there are weights in it alone.
            known.get_state_dict(progress=sys.stderr.isatty(), check_hash=True, weights_only=True)
        return get_model(name, weights=known)
    except pickle.UnpicklingError as error:
        raise UserError(f"{file}: it holds other things than weights, or is damaged; delete it") from error
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = first_line(Exception(getattr(error, "reason", error)))
        remedy = f"save {url} as {file}"
        if fallback is None:
            raise UserError(
                f"model.network.weights: {weights} of {name} can't be downloaded ({reason}); {remedy}, or set "
                "fallback: random"
            ) from error
        network = get_model(name, weights=None)
        network.stand_in = f"RANDOM, not pre-trained: {weights} of {name} can't be downloaded"  # pyright: ignore[reportArgumentType]
        rank_zero_warn(f"The weights are {network.stand_in} ({reason}). For the real ones {remedy}.")
        return network
