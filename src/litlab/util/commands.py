"""What the light verbs share: options, errors as one line, numbers and tables for people."""

import argparse
import shutil
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn

from litlab.errors import UserError
from litlab.util.nearest import nearest
from litlab.util.team import typed

if TYPE_CHECKING:
    from rich.console import Console

_asked = ContextVar("_asked", default=False)  # by `options_of`, for the options instead of their help


class _Answer(Exception):
    """Carries the options out of a verb's main()."""


class Options(argparse.ArgumentParser):
    """An argument parser whose errors are a `UserError`: one line that names the nearest valid option."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(
            prog=typed(verb),
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse_args(self, arguments: list[str]) -> argparse.Namespace:  # type: ignore[override]
        """Parse the arguments.

        Raises:
            UserError: If they are wrong.
        """
        options, unknown = self.parse_known_args(arguments)
        if unknown and not unknown[0].startswith("-"):
            self.error(f"'{unknown[0]}' is one argument too many; see {self.prog} --help")
        if unknown:
            hint = nearest(unknown[0].partition("=")[0], self._option_string_actions, f"; see {self.prog} --help")
            self.error(f"there is no option '{unknown[0]}'{hint}")
        return options

    def error(self, message: str) -> NoReturn:
        """Raise the `UserError`."""
        raise UserError(f"{self.prog.rpartition(' ')[2]}: {message}")

    def format_help(self) -> str:
        """Return what ``--help`` prints."""
        if _asked.get():
            raise _Answer(self)
        return super().format_help()


def options_of(main: Callable[[list[str]], int]) -> Options:
    """Return the options of a verb: those whose help its main() is about to print.

    Args:
        main: The function.

    Raises:
        RuntimeError: If it prints no help.
    """
    token = _asked.set(True)
    try:
        main(["--help"])
    except _Answer as given:
        return given.args[0]
    finally:
        _asked.reset(token)
    raise RuntimeError(f"{main.__module__}.{main.__name__} has printed no help")


def answer(verb: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Run a verb.

    Returns:
        Its exit code; 2 after the one line of a `UserError`; 130 after Ctrl-C.
    """
    try:
        return verb(arguments)
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def amount_of(unit: str, text: str) -> float:
    """Read a finite amount of time above 0, as an option's type: ``partial(amount_of, "hours")``.

    Args:
        unit: What is counted, for the message.
        text: What was typed.

    Raises:
        ArgumentTypeError: If it is no such number.
    """
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of {unit} above 0")
    return amount


def count(text: str) -> int:
    """Read a whole number of at least 1, as an option's type."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; it must be a whole number of at least 1")
    return int(text)


def decimals(value: float | None) -> str:
    """Return a number as tables show it; a dash for none."""
    return "-" if value is None else f"{value:.4g}"


def terminal() -> "Console":
    """Return a console for tables: as wide as the terminal, and wide enough for all columns in a file or a pipe."""
    from rich.console import Console

    return Console(width=shutil.get_terminal_size((160, 24)).columns, highlight=False)


def some(names: list[str]) -> str:
    """Return the first few of many names."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
