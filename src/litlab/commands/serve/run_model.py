"""The model of a run as `serve` calls it, with its preprocessing, in PyTorch."""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litlab.artifact.artifact import checked
from litlab.artifact.servable import Servable, describe
from litlab.artifact.steps import restore, serving_data
from litlab.cli.argv import pin_run
from litlab.cli.config import Command
from litlab.cli.fit import build
from litlab.runs.folder import RunFolder


class RunModel:
    """The model of a run, restored; its data's files are not needed.

    Args:
        argv: A command line of ``test``.

    Attributes:
        manifest: What an export of the run would say of inputs, outputs, facts and the run.
        files: Text files that belong to the model, by their names.
    """

    def __init__(self, argv: list[str]) -> None:
        command = Command(pin_run(argv))
        experiment = build(command)
        model, checkpoint = experiment.model, experiment.checkpoint
        assert checkpoint is not None
        data = serving_data(experiment.data, model, "serve")
        restore(model, data, checkpoint)
        model.load_state_dict(checkpoint["state_dict"])
        serving = data.serving()
        self.servable = Servable(model, serving)
        self.files = serving.files()
        run = RunFolder(Path(command.config.run)) if command.config.run else None
        self.manifest: dict[str, Any] = {
            **describe(serving, run, Path(command.config.ckpt_path)),
            "format": "pytorch",
            "versions": {package: metadata.version(package) for package in ("torch", "lightning")},
        }

    def answer(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model, as `litlab.artifact.Artifact` does.

        Raises:
            UserError: An input is missing, unknown, or of another type or shape.
        """
        tensors = [torch.from_numpy(array) for array in checked(self.manifest, inputs)]
        with torch.inference_mode():
            outputs = self.servable(*tensors)
        names = [entry["name"] for entry in self.manifest["outputs"]]
        return {name: output.numpy() for name, output in zip(names, outputs, strict=True)}
