"""The command line of a light verb: options and their types, errors as one line, exit codes."""

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from litlab.errors import UserError
from litlab.util.team import typed


class Options(argparse.ArgumentParser):
    """An argument parser whose errors are a `UserError`: one line."""

    def __init__(self, verb: str, description: str) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(
            prog=typed(verb), description=description, formatter_class=form, allow_abbrev=False
        )

    # argparse would print the usage, many lines of it, and exit by itself.
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.rpartition(' ')[2]}: {message}")


def answer(verb: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Run a verb and return its exit code: 2 after the one line of a `UserError`, 130 after
    Ctrl-C.
    """
    try:
        return verb(arguments)
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


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
    raise argparse.ArgumentTypeError(
        f"'{text}' is not valid; it must be a whole number of at least 1"
    )
