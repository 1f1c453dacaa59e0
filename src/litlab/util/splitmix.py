"""The splitmix64 generator: numbers that follow from (seed, epoch, place) alone, wherever they are drawn.

Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", doi 10.1145/2660193.2660195.
"""

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15  # the step from one state to the next
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(value: int) -> int:
    """Return the finaliser of a state: neighbours have nothing in common.

    Args:
        value: From 0 to 2**64 - 1.

    Returns:
        In the same range.
    """
    value = ((value ^ (value >> 30)) * MIX_1) % 2**64
    value = ((value ^ (value >> 27)) * MIX_2) % 2**64
    return value ^ (value >> 31)


def mix_array(values: np.ndarray) -> np.ndarray:
    """Return the finaliser of many states.

    Args:
        values: uint64 of any shape.

    Returns:
        uint64 of the same shape.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(MIX_2)
    return values ^ (values >> np.uint64(31))
