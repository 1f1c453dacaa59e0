"""A trained model with its preprocessing, as one module: what is exported, and what `serve` calls."""

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor, nn

from litlab.artifact.manifest import VERSION, sha256
from litlab.data.serving import Serving
from litlab.runs.folder import RunFolder, read_json


class Servable(nn.Module):
    """From raw inputs to answers: what is exported.

    Args:
        model: The trained model, whose ``predict_step`` is called.
        serving: Preprocessing and units.
    """

    def __init__(self, model: LightningModule, serving: Serving) -> None:
        super().__init__()
        self.model = model
        self.serving = serving
        self.eval()

    def forward(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for a batch of raw inputs, both in the order of `serving`."""
        return self.serving.decode(self.model.predict_step(self.serving.encode(*raw), 0))


def describe(serving: Serving, run: RunFolder | None, checkpoint: Path) -> dict[str, Any]:
    """Return what a manifest says of a model: what goes in and comes out, and the run that it is from.

    Args:
        serving: Inputs and outputs.
        run: The run, if the checkpoint is in one.
        checkpoint: The checkpoint's file.
    """
    return {
        "version": VERSION,
        "kind": serving.kind,
        "inputs": [spec.as_dict() for spec in serving.inputs],
        "outputs": [spec.as_dict() for spec in serving.outputs],
        "limits": serving.most,
        "facts": serving.facts(),
        "run": {
            "name": checkpoint.name if run is None else run.name,
            "commit": None if run is None else read_json(run.provenance).get("commit"),
            "checkpoint_sha256": sha256(checkpoint),
        },
    }
