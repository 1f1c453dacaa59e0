"""Fit a ready-made image network to other images and other classes."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from litlab.errors import UserError, first_line


def adapt_network(network: nn.Module, image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """Adapt the first convolution to the images' channels and the last layer to the classes, where they do not fit.

    A network that takes the images and returns the right number of logits comes back as it is. Pre-trained weights
    stay: a first convolution for other channels gets their mean over the channels, scaled so that a grey image gives
    the response that it gave before.

    Args:
        network: Takes images of shape (batch, channel, height, width).
        image_shape: Channels, height and width.
        num_classes: Number of logits.

    Returns:
        The same network, changed in place.

    Raises:
        UserError: If the network can't take such images, or does not return logits of shape (batch, num_classes).
    """
    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    result = _try(network, image_shape)

    if isinstance(result, Exception) and layers:
        name, first = layers[0]
        if isinstance(first, nn.Conv2d) and first.in_channels != image_shape[0] and first.groups == 1:
            network.set_submodule(name, _with_channels(first, image_shape[0]))
            result = _try(network, image_shape)
    if isinstance(result, Exception):
        shape = " x ".join(map(str, image_shape))
        raise UserError(
            f"model.network: {type(network).__name__} can't take images of {shape} ({first_line(result).rstrip('.')}); "
            "set data.image_size or data.mode to what the network expects, or choose another network"
        ) from result

    if isinstance(result, Tensor) and result.shape != (2, num_classes) and layers:
        name, last = layers[-1]
        if isinstance(last, nn.Linear):
            network.set_submodule(name, nn.Linear(last.in_features, num_classes, bias=last.bias is not None))
        else:  # SqueezeNet ends in a 1 x 1 convolution
            network.set_submodule(name, nn.Conv2d(last.in_channels, num_classes, kernel_size=1))
        result = _try(network, image_shape)
    if not isinstance(result, Tensor) or result.shape != (2, num_classes):
        kind = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise UserError(
            f"model.network: {type(network).__name__} returns {kind} for 2 images, not logits of shape "
            f"(2, {num_classes}); switch its auxiliary outputs off, or choose a classifier"
        )
    return network


def without_head(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the largest parts of a network that do not contain its last linear layer or convolution."""
    head = [part for part in network.modules() if isinstance(part, nn.Linear | nn.Conv2d)][-1:]
    for child in network.children():
        if not any(part in head for part in child.modules()):
            yield child
        elif child not in head:
            yield from without_head(child)


def _with_channels(old: nn.Conv2d, channels: int) -> nn.Conv2d:
    settings = {"stride": old.stride, "padding": old.padding, "dilation": old.dilation, "bias": old.bias is not None}
    new = nn.Conv2d(channels, old.out_channels, old.kernel_size, **settings)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        new.weight.copy_(old.weight.mean(dim=1, keepdim=True) * (old.in_channels / channels))
        if new.bias is not None and old.bias is not None:
            new.bias.copy_(old.bias)
    return new


def _try(network: nn.Module, image_shape: tuple[int, int, int]) -> object:
    """Return the network's output for two black images in training, or the exception that it raises."""
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    training = network.training
    images = torch.zeros(2, *image_shape, device=next(network.parameters(), torch.zeros(())).device)
    try:
        with torch.no_grad():
            network.eval()(images)  # sizes that fit no layer fail here
            return network.train()(images)  # auxiliary outputs show here
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        return error
    finally:
        network.train(training)
        for name, buffer in network.named_buffers():
            buffer.copy_(buffers[name])  # batch norms count what they see in training
