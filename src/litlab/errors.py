"""The one exception for what the user can put right, and the library errors that mean the same."""

import re
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can put right.

    The command line prints its message as one line and exits with code 2, without a traceback. The message says what
    is wrong, where (file, row or YAML key) and what to do about it.
    """

    def __str__(self) -> str:
        """The message on one line, even if it quotes a file name or a text of several lines."""
        return "\\n".join(super().__str__().splitlines())


def user_message(error: BaseException) -> str | None:
    """The one line to print for an exception that the user can put right.

    Args:
        error: What reached the command line.

    Returns:
        The line, or None for a bug, which keeps its traceback.
    """
    if isinstance(error, UserError):
        return str(error)

    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from litlab.util.refusals import file_error, refused_in_training

    cause: BaseException | None = error.__cause__
    while cause is not None:  # jsonargparse wraps what a constructor raises
        if isinstance(cause, (UserError, MisconfigurationException)):
            return one_line(cause)
        cause = cause.__cause__
    text = " ".join(str(error).split())
    if found := re.search(
        r"Early stopping conditioned on metric `([^`]+)` which is not available.*following: (.*)", text
    ):
        return _unknown_metric("early_stopping", found[1], re.findall(r"`([^`]+)`", found[2]))
    if found := re.search(r"ModelCheckpoint\(monitor='([^']+)'\)` could not find .*metrics: \[(.*)\]", text):
        return _unknown_metric("checkpoint", found[1], re.findall(r"'([^']+)'", found[2]))
    if found := re.search(r"ReduceLROnPlateau conditioned on metric (\S+) which is not available.*are: \[(.*)\]", text):
        return _unknown_metric("model.schedule", found[1], re.findall(r"'([^']+)'", found[2]))
    if isinstance(error, MisconfigurationException):  # Lightning's word for settings that don't go together
        return f"trainer: {one_line(error)}"
    if isinstance(error, OSError) and (line := file_error(error)):
        return line
    return refused_in_training(error)


def one_line(error: BaseException) -> str:
    """The first line of what an exception of a library says."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(":") if lines else type(error).__name__


def _unknown_metric(section: str, name: str, logged: list[str]) -> str:
    if name.startswith("val/") and not any(metric.startswith("val/") for metric in logged):
        return (
            f"{section}.monitor: '{name}' is not logged, as nothing was validated: set data.val_fraction above 0 "
            f"(for series the second share of data.split; and trainer.limit_val_batches), or {section}: null."
        )
    nearest = get_close_matches(name, logged, n=1)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"logged are {', '.join(sorted(logged))}."
    return f"{section}.monitor: no metric '{name}' is logged: {hint}"
