"""The model of a run as it is deployed: with its preprocessing as one module."""

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor, nn

from litlab.artifact.artifact import VERSION
from litlab.cli.config import Command
from litlab.cli.fit import Experiment, build_experiment
from litlab.cli.noise import silence_noise
from litlab.data import ExperimentData
from litlab.data.serving import Serving
from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_record

# Settings of the weights alone, on one CPU in full precision: neither plots nor compiling nor a
# logger.
ALONE = (
    "--trainer.accelerator=cpu", "--trainer.devices=1", "--trainer.num_nodes=1",
    "--trainer.strategy=auto", "--trainer.precision=32-true", "--trainer.logger=false",
    "--trainer.callbacks=null", "--compile=null", "--activation_checkpointing=null", "--vram=null",
    "--test_after_fit=true",
)  # fmt: skip


class Servable(nn.Module):
    """From raw inputs to answers, by the model's ``predict_step``: what is exported, and what
    `serve` calls.
    """

    def __init__(self, model: LightningModule, serving: Serving) -> None:
        super().__init__()
        self.model = model
        self.serving = serving
        self.eval()

    def forward(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for a batch of raw inputs, both in the order of `serving`."""
        return self.serving.decode(self.model.predict_step(self.serving.encode(*raw), 0))


def describe_export(serving: Serving, run: str | None, checkpoint: str) -> dict[str, Any]:
    """Return what a manifest says of a model: what goes in and comes out, and the run that it is
    from.
    """
    folder = RunFolder(Path(run)) if run else None
    return {
        "version": VERSION,
        "serving": f"{type(serving).__module__}.{type(serving).__qualname__}",
        "kind": serving.kind,
        "inputs": [spec.as_dict() for spec in serving.inputs],
        "outputs": [spec.as_dict() for spec in serving.outputs],
        "limits": serving.most,
        "facts": serving.facts(),
        "run": {
            "name": folder.name if folder else Path(checkpoint).name,
            "commit": read_record(folder.provenance).get("commit") if folder else None,
            "checkpoint": Path(checkpoint).name,
        },
    }


def load_servable(run: str, settings: list[str]) -> tuple[Experiment, Servable, dict[str, Any]]:
    """Build the model of a run, with its weights and its preprocessing, on the CPU.

    Args:
        run: Run or checkpoint.
        settings: Settings of the run that differ.

    Returns:
        The experiment, its model behind raw inputs, and what a manifest says of it.

    Raises:
        UserError: There is no such run, or it can't be deployed.
    """
    silence_noise()
    command = Command(["test", "--run", run, *ALONE, *settings])
    experiment = build_experiment(command)
    model, checkpoint = experiment.model, experiment.checkpoint
    assert checkpoint is not None  # of --run
    data, name = experiment.data, type(experiment.data).__qualname__
    if not isinstance(data, ExperimentData):
        raise UserError(
            f"--run: {name} has no serving(), which export and serve need; write one "
            "(docs/deploy.md)"
        )
    if name not in checkpoint:
        raise UserError(f"--data: the checkpoint was not made with {name}; leave it out")

    # What a checkpoint holds besides the weights, as the Trainer restores it
    model.on_load_checkpoint(checkpoint)
    data.load_state_dict(checkpoint[name])
    serving = data.serving()
    model.load_state_dict(checkpoint["state_dict"])
    about = describe_export(serving, command.config.run, command.config.ckpt_path)
    return experiment, Servable(model, serving), about
