"""What is served: the model of a run in PyTorch, or an exported one, behind one interface."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litlab.artifact import Artifact, is_exported
from litlab.commands.serve.batching import Answer
from litlab.commands.serve.readers import Fields, Sample, choose_reader

Arrays = Sequence[np.ndarray]


class Model:
    """Answers requests.

    Args:
        manifest: What is known of the model, as an export writes it.
        files: Texts of the files that belong to it, such as ``tokenizer.json``, by their names.
        run: Returns the outputs for a batch of inputs, both in the order of the manifest.
    """

    def __init__(self, manifest: Mapping[str, Any], files: Mapping[str, str], run: Callable[[Arrays], Arrays]) -> None:
        self.manifest, self.run = manifest, run
        self.reader = choose_reader(manifest, files)

    def answer(self, requests: Sequence[Fields]) -> list[Answer]:
        """Return the answer to each request; an exception is that of one request, and does not touch the others."""
        samples = [_attempt(self.reader.read, fields) for fields in requests]
        computed = iter(self._compute([sample for sample in samples if isinstance(sample, Sample)]))
        return [next(computed) if isinstance(sample, Sample) else sample for sample in samples]

    def _compute(self, samples: list[Sample]) -> list[Answer]:
        """Call the model once; where it fails on all samples together, once for each."""
        if not samples:
            return []
        outputs = _attempt(self.run, self.reader.stack(samples))
        if isinstance(outputs, Exception):
            return [outputs] if len(samples) == 1 else [self._compute([sample])[0] for sample in samples]

        answers = []
        names = [entry["name"] for entry in self.manifest["outputs"]]
        end = 0
        for sample in samples:
            start, end = end, end + len(sample.inputs[0])
            rows = {name: output[start:end] for name, output in zip(names, outputs, strict=True)}
            answers.append(_attempt(self.reader.answer, rows, sample.context))
        return answers


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or the exception that it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


def load_model(run: str, settings: Sequence[str], workers: int) -> Model:
    """Load what the user has named; the data that it was trained on is not needed.

    Args:
        run: Folder of an export, or a run or checkpoint.
        settings: Settings of the run that differ.
        workers: Processes that share the cores.

    Raises:
        UserError: There is none, or it can't be loaded here.
    """
    import torch

    threads = max(1, torch.get_num_threads() // workers)
    torch.set_num_threads(threads)
    if not is_exported(run):
        return _load_run(run, settings)
    artifact = Artifact(Path(run), threads)
    texts = [name for name in artifact.manifest["files"] if name.endswith(".json")]
    return Model(artifact.manifest, {name: (Path(run) / name).read_text("utf-8") for name in texts}, artifact.run)


def _load_run(run: str, settings: Sequence[str]) -> Model:
    import torch

    from litlab.artifact.servable import Servable, describe
    from litlab.artifact.steps import restore, serving_data
    from litlab.cli.argv import ALONE, pin_run
    from litlab.cli.config import Command
    from litlab.cli.fit import build
    from litlab.cli.quiet import silence_noise
    from litlab.runs.folder import RunFolder

    silence_noise()
    command = Command(pin_run(["test", "--run", run, *ALONE, *settings]))
    experiment = build(command)
    model, checkpoint = experiment.model, experiment.checkpoint
    assert checkpoint is not None  # of --run
    data = serving_data(experiment.data, model, "serve")
    restore(model, data, checkpoint)
    model.load_state_dict(checkpoint["state_dict"])
    serving = data.serving()
    servable = Servable(model, serving)

    def compute(inputs: Arrays) -> Arrays:
        with torch.inference_mode():
            return [output.numpy() for output in servable(*map(torch.from_numpy, inputs))]

    config = command.config
    folder = RunFolder(Path(config.run)) if config.run else None
    manifest = describe(serving, folder, Path(config.ckpt_path))
    return Model({**manifest, "format": "pytorch"}, serving.files(), compute)
