"""What a client is told when its request is not answered."""

import json
import re
from typing import Any

from litlab.errors import UserError

_SETTINGS = re.compile(r",? or use --data\.\w+ \w+|; set --data\..*")  # advice for the command line


class Refusal(Exception):
    """A request that is not answered.

    Args:
        status: The HTTP status.
        message: Why, in one sentence.
        headers: Headers of the response, such as ``Retry-After``.
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, " ".join(message.split()), headers or {}

    @property
    def body(self) -> bytes:
        """The body of the response: JSON with the message as ``error``."""
        return encoded({"error": self.message})


def of_user(error: UserError) -> Refusal:
    """Return the refusal of input that the code of ``predict`` does not take, without advice on settings."""
    return Refusal(422, _SETTINGS.sub("", str(error)))


def encoded(content: dict[str, Any]) -> bytes:
    """Return an answer as JSON.

    Raises:
        ValueError: A number in it is NaN or infinite.
    """
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
