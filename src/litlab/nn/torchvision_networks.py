"""Networks of torchvision with pre-trained weights, where these can be had."""

import http.client
import sys
import urllib.error
from typing import Literal

from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from litlab.errors import UserError, first_line
from litlab.util.files import socket_timeout
from litlab.util.text import nearest


def pretrained(name: str, weights: str | None = "DEFAULT", fallback: Literal["random"] | None = None) -> nn.Module:
    """Build a network of torchvision, with weights that were trained on ImageNet.

    Args:
        name: The network, such as resnet18.
        weights: Which of its weights, such as IMAGENET1K_V1. null: random ones.
        fallback: `random` takes random weights where the others can't be downloaded, and says so; null stops there.

    Returns:
        The network. Its attribute ``stand_in`` says so where its weights are random in place of others.

    Raises:
        UserError: There is no such network, or no such weights, or they can't be downloaded and there is no fallback.
    """
    from torchvision.models import get_model, get_model_weights, list_models

    if name not in list_models():
        raise UserError(f"model.network.name: torchvision has no '{name}'{nearest(name, list_models())}")
    known = list(get_model_weights(name).__members__)
    if weights is not None and weights not in known:
        raise UserError(f"model.network.weights: {name} has no '{weights}'; choose one of {', '.join(known)}")
    try:
        with socket_timeout(10):  # for the next bytes; without it, for ever
            return get_model(name, weights=weights, progress=sys.stderr.isatty())
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        from torch.hub import get_dir

        url = get_model_weights(name)[str(weights)].url
        reason = first_line(Exception(getattr(error, "reason", error)))
        remedy = f"save {url} as {get_dir()}/checkpoints/{url.rpartition('/')[2]}"
        if fallback is None:
            raise UserError(
                f"model.network.weights: {weights} of {name} can't be downloaded ({reason}); {remedy}, or set "
                "fallback: random"
            ) from error
        network = get_model(name, weights=None)
        network.stand_in = f"RANDOM, not pre-trained: {weights} of {name} can't be downloaded"  # pyright: ignore[reportArgumentType]
        _say(f"{network.stand_in} ({reason})", remedy)
        return network


@rank_zero_only
def _say(what: str, remedy: str) -> None:
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    text = Text.assemble(
        (f"The weights are {what}.", "bold"),
        "\nThis run trains from scratch, as model.network.fallback says: what it freezes stays random.\nFor the real "
        f"ones {remedy}",
    )
    Console(stderr=True).print(Panel(text, title="RANDOM WEIGHTS", border_style="bold yellow"))
