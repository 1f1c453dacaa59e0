"""A trained model with its preprocessing as one module, and an exported one in the place of a network."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import Tensor, nn

from litlab.artifact.artifact import VERSION, Run
from litlab.data import ExperimentData
from litlab.data.serving import Serving
from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_json


class Servable(nn.Module):
    """From raw inputs to answers, by the model's ``predict_step``: what is exported, and what `serve` calls."""

    def __init__(self, model: LightningModule, serving: Serving) -> None:
        super().__init__()
        self.model = model
        self.serving = serving
        self.eval()

    def forward(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for a batch of raw inputs, both in the order of `serving`."""
        return self.serving.decode(self.model.predict_step(self.serving.encode(*raw), 0))


def describe(serving: Serving, run: str | None, checkpoint: str) -> dict[str, Any]:
    """Return what a manifest says of a model: what goes in and comes out, and the run that it is from."""
    folder = RunFolder(Path(run)) if run else None
    return {
        "version": VERSION,
        "kind": serving.kind,
        "inputs": [spec.as_dict() for spec in serving.inputs],
        "outputs": [spec.as_dict() for spec in serving.outputs],
        "limits": serving.most,
        "facts": serving.facts(),
        "run": {
            "name": folder.name if folder else Path(checkpoint).name,
            "commit": read_json(folder.provenance).get("commit") if folder else None,
            "checkpoint": Path(checkpoint).name,
        },
    }


def restore(model: LightningModule, data: LightningDataModule, checkpoint: dict[str, Any]) -> Serving:
    """Give model and data what a checkpoint holds besides the weights, as the Trainer does; return their serving."""
    name = type(data).__qualname__
    if not isinstance(data, ExperimentData) or not hasattr(model, "test_predictions"):
        raise UserError(
            f"--run: {type(model).__name__} on {name} can't be exported or served; it needs test_predictions(), and "
            "the data serving() (docs/deploy.md)"
        )
    if name not in checkpoint:
        raise UserError(f"--data: the checkpoint holds nothing of a {name}; leave it out")
    model.on_load_checkpoint(checkpoint)
    data.load_state_dict(checkpoint[name])
    return data.serving()


def replace_network(model: Any, data: Any, serving: Serving, run: Run) -> None:
    """Let an exported model predict and be tested in place of the network: same files, same metrics.

    Callbacks see the same batches as before; the exported model gets what these were before `transform`.
    """
    transform = data.transform
    kept: dict[str, Any] = {}

    def keep(batch: Any, epoch: int | None) -> Any:
        kept["batch"] = batch
        return transform(batch, epoch)

    def predict() -> Tensor:
        serving.to(model.device)
        raw = [tensor.contiguous().cpu().numpy() for tensor in serving.raw(kept["batch"])]
        return serving.predicted([torch.from_numpy(array).to(model.device) for array in run(raw)])

    data.transform = keep
    model.predict_step = lambda batch, batch_idx: predict()
    model.test_step = lambda batch, batch_idx: model.test_predictions(predict(), serving.target(kept["batch"]))
