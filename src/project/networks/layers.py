"""What networks share in YAML: norms for images by the number of channels alone, and rates for one
    layer or each.

``torch.nn.BatchNorm2d``, ``InstanceNorm2d`` and ``Identity`` (none) can be named as ``norm`` as
they are.
"""

from collections.abc import Sequence

from torch import nn


class GroupNorm(nn.GroupNorm):
    """Normalise each image over groups of neighbouring channels and all positions (Wu & He 2018,
    arXiv:1803.08494).

    Unlike batch normalisation, it does not depend on the rest of the batch, which suits batches of
    a few images.

    Args:
        channels: Channels of the images, (batch, channel, height, width).
        groups: Number of groups; it must divide the channels.
    """

    def __init__(self, channels: int, groups: int = 8) -> None:
        super().__init__(groups, channels)


class LayerNorm(nn.GroupNorm):
    """Normalise each image over all of its values: channel, height and width (Ba et al. 2016,
        arXiv:1607.06450).

    Scale and shift are learned per channel, as for the other norms, so that images may have any
    size: that is a `GroupNorm` of one group. (ConvNeXt's "LayerNorm" is another one: over the
    channels of each position.)

    Args:
        channels: Channels of the images, (batch, channel, height, width).
    """

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)


def spread_rates(name: str, value: float | Sequence[float], layers: int) -> list[float]:
    """Return the rate of each layer.

    Args:
        name: The setting, for messages.
        value: One number, or one for each layer.
        layers: Number of layers.

    Raises:
        ValueError: If there are more or fewer numbers than layers.
    """
    if isinstance(value, int | float):
        return [value] * layers
    if len(value) != layers:
        raise ValueError(
            f"{name} is {value}: give one number, or one for each of the {layers} layers"
        )
    return list(value)
