"""What is served: the model of a run in PyTorch, or an exported one, behind one interface."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from litlab.artifact import Artifact, is_exported
from litlab.artifact.artifact import Run, take_arrays
from litlab.artifact.trusted import load_serving
from litlab.commands.serve.app import ADVICE
from litlab.commands.serve.batcher import Answer
from litlab.data.serving import Sample, Serving
from litlab.errors import UserError

# What was sent: values of JSON, texts and files (bytes) of a form, by their names
Fields = Mapping[str, Any]


class Model:
    """Answers requests. `run` returns the outputs for a batch of inputs, both in the order of the
    manifest.
    """

    def __init__(self, manifest: Mapping[str, Any], serving: Serving, run: Run) -> None:
        self.manifest, self.serving, self.run = manifest, serving, run

    def answer(self, requests: Sequence[Fields]) -> list[Answer]:
        """Return the answer to each request; an exception is that of one request, and does not
        touch the others.

        Raises:
            Exception: The model fails on all of them together.
        """
        read = [_attempt(self._read, fields) for fields in requests]
        samples = [sample for sample in read if isinstance(sample, Sample)]
        computed = iter(self._compute(samples) if samples else [])
        return [next(computed) if isinstance(sample, Sample) else sample for sample in read]

    def _read(self, fields: Fields) -> Sample:
        """Read the field of the model's kind, or the file of a form."""
        field = self.serving.field
        for name in fields:
            if name not in (field, "file"):
                raise UserError(
                    f"{name[:40]!r}: there is no such field; send {field!r} in JSON or a form"
                )
        sent = fields.get(field, fields.get("file"))
        if sent is None:
            raise UserError(
                f"there is no {field}; send it as {field!r}, or as the file 'file' of a form"
            )
        with collect_warnings() as warnings:
            sample = self.serving.read(sent)
        return replace(sample, warnings=warnings)

    def _compute(self, samples: list[Sample]) -> list[Answer]:
        """Call the model once."""
        outputs = self.run(self.serving.stack(samples))
        ends = np.cumsum([len(sample.inputs[0]) for sample in samples]).tolist()
        if any(len(output) != ends[-1] for output in outputs):  # or one would get another's answer
            raise RuntimeError(f"the model has no answer for each of {ends[-1]} inputs")
        # Those of each request
        parts = zip(*(np.split(output, ends[:-1]) for output in outputs), strict=True)
        return [_attempt(self._answer, *pair) for pair in zip(parts, samples, strict=True)]

    def _answer(self, outputs: Sequence[np.ndarray], sample: Sample) -> dict[str, Any]:
        if not np.isfinite(outputs[0]).all():
            raise UserError(
                "the model's answer is not a finite number; are the values like those in training?"
            )
        names = [spec.name for spec in self.serving.outputs]
        answer = self.serving.answer(dict(zip(names, outputs, strict=True)), sample.context)
        return answer | ({"warnings": sample.warnings} if sample.warnings else {})


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect the warnings that are logged while a request is read, for those who sent it, without
    their advice on settings, which only the command line takes.
    """
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            _, is_warning, text = record.getMessage().partition("warning: ")
            if is_warning:
                lines.append(ADVICE.sub("", text))

    logger, listener = logging.getLogger("lightning.pytorch"), Listener()  # of rank_zero_info
    logger.addHandler(listener)
    try:
        yield lines
    finally:
        logger.removeHandler(listener)


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
        artifact = Artifact(Path(run))
        serving = load_serving(Path(run), artifact.manifest)
        return Model(artifact.manifest, serving, artifact.run)

    from litlab.artifact.servable import load_servable

    _, servable, manifest = load_servable(run, settings)
    return Model({**manifest, "format": "pytorch"}, servable.serving, take_arrays(servable))
