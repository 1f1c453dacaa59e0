"""The command line of a light verb: options, errors as one line, exit codes."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from litlab.errors import UserError
from litlab.util.team import typed


class Options(argparse.ArgumentParser):
    """An argument parser whose errors are a `UserError`: one line."""

    def __init__(self, verb: str, description: str) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=typed(verb), description=description, formatter_class=form, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.rpartition(' ')[2]}: {message}")


def answer(verb: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Run a verb and return its exit code: 2 after the one line of a `UserError`, 130 after Ctrl-C."""
    try:
        return verb(arguments)
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
