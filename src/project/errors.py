"""The one exception for what the user can put right."""


class UserError(Exception):
    """Something the user can put right.

    The command line prints its message as one line and exits with code 2, without a traceback. The message says what
    is wrong, where (file, row or YAML key) and what to do about it.
    """
