"""``RunCLI``: the model of a run as `serve` calls it, with its preprocessing, in PyTorch."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np
import torch

from litlab.artifact.artifact import checked
from litlab.artifact.steps import restore, serving_data
from litlab.cli.experiment_cli import ExperimentCLI
from litlab.export.request import describe
from litlab.export.servable import Servable
from litlab.runs.folder import RunFolder


class RunCLI(ExperimentCLI):
    """Builds model and data of a run as ``test`` does, and keeps the model instead of testing it.

    Attributes:
        manifest: What an export of the run would say of inputs, outputs, facts and the run.
        files: Text files that belong to the model, by their names.
    """

    manifest: dict[str, Any]
    files: dict[str, str]

    def _compare_with(self, run: RunFolder, config: dict[str, Any]) -> None:
        """Leave out the list of settings that differ: ``serve`` itself has set most of them."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Restore the model, and describe it."""
        assert self.checkpoint is not None
        run, file = self.plan.run, self.plan.checkpoint
        assert file is not None
        data = serving_data(self.datamodule, self.model, "serve")
        restore(self.model, data, self.checkpoint)
        self.model.load_state_dict(self.checkpoint["state_dict"])
        serving = data.serving()
        self.servable = Servable(self.model, serving)
        self.files = serving.files()
        self.manifest = {
            **describe(serving, run, file),
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
