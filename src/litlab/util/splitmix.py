"""The splitmix64 generator: numbers that follow from (seed, epoch, place) alone, wherever they are
    drawn.

Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", doi
10.1145/2660193.2660195.
"""

GOLDEN = 0x9E3779B97F4A7C15  # the step from one state to the next


def next_number(state: int) -> int:
    """Return the number that follows a state."""
    return mix((state + GOLDEN) % 2**64)


def mix(value: int) -> int:
    """Return the finaliser of a state, from 0 to 2**64 - 1: neighbours have nothing in common."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    return value ^ (value >> 31)
