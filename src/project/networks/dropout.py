"""One probability for all layers, or one for each, as ``dropout`` of a network in YAML takes it."""

from collections.abc import Sequence


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
        raise ValueError(f"{name} is {value}: give one number, or one for each of the {layers} layers")
    return list(value)
