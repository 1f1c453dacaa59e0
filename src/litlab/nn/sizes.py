"""Checks of the sizes that networks are built from."""

from collections.abc import Sequence

MAX_LAYERS = 1000  # layers; more are a typing error, and building them would take hours


def check_sizes(least: int = 1, **sizes: int | Sequence[int]) -> None:
    """Check that sizes are large enough; torch builds layers of size 0, which learn nothing.

    Args:
        least: The smallest size.
        sizes: A size, or several, by the argument's name.

    Raises:
        ValueError: For the first one that is smaller.
    """
    for name, size in sizes.items():
        if min(size if isinstance(size, Sequence) else [size], default=least - 1) < least:
            raise ValueError(f"{name} is {size}: it must be {least} or more")
