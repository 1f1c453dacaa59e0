"""The one exception for what the user can put right."""


class UserError(Exception):
    """Something the user can put right.

    The command line prints its message as one line and exits with code 2, without a traceback. The message says what
    is wrong, where (file, row or YAML key) and what to do about it.
    """

    def __str__(self) -> str:
        """The message on one line, even if it quotes a file name or a text of several lines."""
        return "\\n".join(super().__str__().splitlines())


def first_line(error: BaseException) -> str:
    """The first line of what an exception of a library says."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(":") if lines else type(error).__name__
