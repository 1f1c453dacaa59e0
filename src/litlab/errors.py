"""The one exception for what the user can put right, also in a worker of a loader, and where in the
config another one came from.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something the user can put right.

    The command line prints its message as one line and exits with code 2, without a traceback. The
    message has the form ``KEY: what is wrong; what to do``, where KEY is a YAML key, a flag, or a
    file and its row.
    """

    def __str__(self) -> str:
        """Return the message on one line, even if it quotes a file name or a text of several
        lines.
        """
        return printable(super().__str__())


class LoaderError(UserError):
    """A `UserError` of a data set: its one line survives the traceback that torch puts around
    errors of workers.

    Args:
        message: What is wrong, or torch's text around it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.rpartition(f"{type(self).__name__}: ")[2].rstrip())


def printable(text: str) -> str:
    """Return a text that stays one line and can't control a terminal: other characters become
    escapes.
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def first_line(error: BaseException) -> str:
    """Return the first line of what an exception of a library says."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(":") if lines else type(error).__name__


def list_causes(error: BaseException) -> list[BaseException]:
    """Return an exception and those that it comes from, the first one last."""
    return [error] if error.__cause__ is None else [error, *list_causes(error.__cause__)]


@contextmanager
def building(key: str) -> Iterator[None]:
    """Note on an exception which part of the config was being built, such as
    ``model.optimizer``.
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"building {key}")
        raise
