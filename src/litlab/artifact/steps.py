"""Let an exported model predict and be tested in place of the network: same files, same metrics."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import Tensor

from litlab.artifact.artifact import Artifact
from litlab.artifact.runtimes import Run
from litlab.data import ExperimentData
from litlab.errors import UserError


def serving_data(data: LightningDataModule, model: LightningModule, verb: str) -> ExperimentData:
    """Return the DataModule, if it and the model are such that they can be exported.

    Args:
        data: The DataModule.
        model: The model.
        verb: The command that asks, for the message; `export` and `test` also need what `test` of an export calls.

    Raises:
        UserError: They are not.
    """
    if not isinstance(data, ExperimentData):
        raise UserError(f"{verb}: {type(data).__name__} is not an ExperimentData with serving(); see docs/deploy.md")
    if verb in ("export", "test") and not hasattr(model, "test_predictions"):
        raise UserError(f"{verb}: {type(model).__name__} has no test_predictions(); see docs/deploy.md")
    return data


def replace_network(
    model: LightningModule, data: LightningDataModule, checkpoint: Any, folder: Path, verb: str, threads: int | None
) -> None:
    """Let an exported model take the place of the network, which has no weights.

    Args:
        model: The model that the config of the export describes.
        data: Its data.
        checkpoint: The checkpoint in the export, without weights.
        folder: The export.
        verb: The command, for messages.
        threads: Threads that compute; None for the runtime's choice.
    """
    serving = serving_data(data, model, verb)
    restore(model, serving, checkpoint)
    use_artifact(model, serving, Artifact(folder, threads).run)


def restore(model: LightningModule, data: ExperimentData, checkpoint: dict[str, Any]) -> None:
    """Give model and data what a checkpoint holds besides the weights, as the Trainer does.

    Raises:
        UserError: The checkpoint is for another DataModule.
    """
    name = type(data).__qualname__
    if name not in checkpoint:
        raise UserError(f"--data: the checkpoint holds nothing of a {name}; leave it out")
    model.on_load_checkpoint(checkpoint)
    data.load_state_dict(checkpoint[name])


def use_artifact(model: Any, data: ExperimentData, run: Run) -> None:
    """Replace the steps of a model by the calls of an exported one.

    Callbacks see the same batches as before; the exported model gets what these were before `transform`.

    Args:
        model: Its ``predict_step`` and ``test_step`` are replaced.
        data: Its metadata must be known. Its `transform` also keeps the raw inputs.
        run: The exported model.
    """
    serving, transform = data.serving(), data.transform
    kept: dict[str, Any] = {}

    def keep(batch: Any, epoch: int | None) -> Any:
        kept["batch"] = batch
        return transform(batch, epoch)

    def predicted() -> Tensor:
        serving.to(model.device)
        raw = [tensor.contiguous().cpu().numpy() for tensor in serving.raw(kept["batch"])]
        return serving.predicted([torch.from_numpy(array).to(model.device) for array in run(raw)])

    data.transform = keep
    model.predict_step = lambda batch, batch_idx: predicted()
    model.test_step = lambda batch, batch_idx: model.test_predictions(predicted(), serving.target(kept["batch"]))
