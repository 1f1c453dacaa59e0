"""Answers batches of requests: reads each, calls the model once, writes each answer."""

import traceback
from collections.abc import Sequence

import numpy as np

from litlab.commands.serve.body import read_body
from litlab.commands.serve.messages import Reply
from litlab.commands.serve.model import Model
from litlab.commands.serve.readers.kinds import reader_of
from litlab.commands.serve.readers.reader import Asked
from litlab.commands.serve.refusal import Refusal, encoded, of_user
from litlab.errors import UserError

_FAILED = Refusal(500, "the server failed to answer this request; its log says more")


class Answerer:
    """Answers requests for one model.

    Args:
        served: The model.
    """

    def __init__(self, served: Model) -> None:
        self.served = served
        self.reader = reader_of(served.manifest, served.text_file)

    def answers(self, requests: Sequence[tuple[str, bytes]]) -> list[Reply]:
        """Answer some requests.

        Args:
            requests: ``Content-Type`` and body of each.

        Returns:
            The reply to each: what is wrong with one does not touch the others.
        """
        replies: dict[int, Reply] = {}
        batch: dict[int, Asked] = {}
        for place, (content_type, body) in enumerate(requests):
            try:
                batch[place] = self.reader.read(read_body(content_type, body))
            except Exception as error:
                replies[place] = _refused(error)
        if batch:
            found = self._computed(list(batch.values()))
            replies |= dict(zip(batch, found, strict=True))
        return [replies[place] for place in range(len(requests))]

    def _computed(self, batch: list[Asked]) -> list[Reply]:
        """Return the replies to requests that were read; if the model fails on all together, one by one."""
        try:
            outputs = self.served.run(self.reader.stack(batch))
        except Exception as error:
            if len(batch) > 1:
                traceback.print_exception(error)
                return [reply for asked in batch for reply in self._computed([asked])]
            return [_refused(error)]
        replies = []
        ends = np.cumsum([asked.samples for asked in batch])
        for asked, end in zip(batch, ends, strict=True):
            own = {name: values[end - asked.samples : end] for name, values in outputs.items()}
            try:
                replies.append(Reply(200, encoded(self.reader.answer(own, asked))))
            except Exception as error:
                replies.append(_refused(error))
        return replies


def _refused(error: Exception) -> Reply:
    """Return the reply that tells an error; a traceback goes to the log where the error is no fault of the request."""
    if isinstance(error, UserError):
        error = of_user(error)
    if isinstance(error, Refusal):
        return Reply(error.status, error.body)
    traceback.print_exception(error)
    return Reply(_FAILED.status, _FAILED.body)
