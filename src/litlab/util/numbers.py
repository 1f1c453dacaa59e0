"""Types of numbers for the options of commands."""

import argparse
from contextlib import suppress


def amount_of(unit: str, text: str) -> float:
    """Read a finite number above 0, as an option's type: ``partial(amount_of, "hours")``."""
    with suppress(ValueError):
        amount = float(text)
        if 0 < amount < float("inf"):
            return amount
    raise argparse.ArgumentTypeError(f"'{text}' is not a number of {unit} above 0")


def count(text: str) -> int:
    """Read a whole number of at least 1, as an option's type."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"'{text}' is not valid; it must be a whole number of at least 1")
