"""What readers share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from litlab.commands.serve.body import Given
from litlab.commands.serve.refusal import Refusal

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Asked:
    """A request, read.

    Args:
        arrays: The model's inputs; the first axis is the sample.
        context: What the answer needs besides the outputs.
    """

    arrays: Arrays
    context: Any = None

    @property
    def samples(self) -> int:
        """How many samples it has."""
        return len(next(iter(self.arrays.values())))


class Reader(ABC):
    """Reads requests for one model.

    Args:
        manifest: The model's manifest.
        text_file: Returns the text of a file that belongs to the model, by the file's name.
    """

    def __init__(self, manifest: Mapping[str, Any], text_file: Callable[[str], str]) -> None:
        self.facts: dict[str, Any] = manifest["facts"]
        self.inputs = {entry["name"]: entry for entry in manifest["inputs"]}

    @abstractmethod
    def read(self, given: Given) -> Asked:
        """Turn what was sent into inputs.

        Raises:
            Refusal: It can't be used.
            UserError: Likewise.
        """

    @abstractmethod
    def answer(self, outputs: Arrays, asked: Asked) -> dict[str, Any]:
        """Turn the outputs for a request into the answer, which is sent as JSON.

        Raises:
            Refusal: A number is NaN or infinite.
        """

    def stack(self, batch: Sequence[Asked]) -> Arrays:
        """Join the inputs of some requests."""
        return {name: np.concatenate([asked.arrays[name] for asked in batch]) for name in self.inputs}


def check_finite(values: np.ndarray) -> None:
    """Refuse an answer that is none.

    Raises:
        Refusal: A number is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise Refusal(422, "the model's answer is not a finite number; are the values like those of the training?")


def class_answer(names: Sequence[str], probabilities: np.ndarray) -> dict[str, Any]:
    """Return the class of a sample, its probability, and all probabilities.

    Args:
        names: The classes.
        probabilities: Shape (class,).

    Raises:
        Refusal: One is NaN or infinite.
    """
    check_finite(probabilities)
    best = int(probabilities.argmax())
    rounded = [round(float(value), 6) for value in probabilities]  # as in a file of predictions
    return {
        "class": names[best],
        "probability": rounded[best],
        "probabilities": dict(zip(names, rounded, strict=True)),
    }
