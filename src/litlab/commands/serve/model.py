"""What is served: the model of a run in PyTorch, or an exported one, behind one interface."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litlab.artifact import Artifact, is_exported
from litlab.artifact.artifact import take_arrays
from litlab.commands.serve.batcher import Answer
from litlab.commands.serve.readers import Fields, Sample, choose_reader

Arrays = Sequence[np.ndarray]


class Model:
    """Answers requests. `run` returns the outputs for a batch of inputs, both in the order of the
    manifest.
    """

    def __init__(
        self, manifest: Mapping[str, Any], files: Mapping[str, str], run: Callable[[Arrays], Arrays]
    ) -> None:
        self.manifest, self.run = manifest, run
        self.reader = choose_reader(manifest, files)

    def answer(self, requests: Sequence[Fields]) -> list[Answer]:
        """Return the answer to each request; an exception is that of one request, and does not
        touch the others.

        Raises:
            Exception: The model fails on all of them together.
        """
        read = [_attempt(self.reader.read, fields) for fields in requests]
        samples = [sample for sample in read if isinstance(sample, Sample)]
        computed = iter(self._compute(samples) if samples else [])
        return [next(computed) if isinstance(sample, Sample) else sample for sample in read]

    def _compute(self, samples: list[Sample]) -> list[Answer]:
        """Call the model once."""
        outputs = self.run(self.reader.stack(samples))
        ends = np.cumsum([len(sample.inputs[0]) for sample in samples]).tolist()
        if any(len(output) != ends[-1] for output in outputs):  # or one would get another's answer
            raise RuntimeError(f"the model has no answer for each of {ends[-1]} inputs")

        answers = []
        names = [entry["name"] for entry in self.manifest["outputs"]]
        for sample, start, end in zip(samples, [0, *ends], ends, strict=False):
            rows = {name: output[start:end] for name, output in zip(names, outputs, strict=True)}
            answers.append(_attempt(self.reader.answer, rows, sample.context))
        return answers


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return error


def load_model(run: str, settings: list[str], workers: int) -> Model:
    """Load an export, run or checkpoint for one of some workers, which share the cores. Its data is
    not needed.
    """
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    if is_exported(run):
        artifact, files = Artifact(Path(run)), Path(run).glob("*.json")
        return Model(
            artifact.manifest, {file.name: file.read_text("utf-8") for file in files}, artifact.run
        )

    from litlab.artifact.servable import load_servable

    _, servable, manifest = load_servable(run, settings)

    return Model({**manifest, "format": "pytorch"}, servable.serving.files(), take_arrays(servable))
