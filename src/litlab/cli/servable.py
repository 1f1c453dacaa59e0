"""The model of a run as it is deployed: for the commands ``export`` and ``serve``."""

from typing import Any

from litlab.artifact.servable import Servable, describe, restore
from litlab.cli.argv import ALONE
from litlab.cli.config import Command
from litlab.cli.fit import Experiment, build
from litlab.cli.quiet import silence_noise
from litlab.errors import UserError


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
    experiment = build(command)
    model, checkpoint = experiment.model, experiment.checkpoint
    assert checkpoint is not None  # of --run
    if experiment.export is not None:
        raise UserError(f"--run: {experiment.export} is an exported model; name the run that it is from")
    serving = restore(model, experiment.data, checkpoint)
    model.load_state_dict(checkpoint["state_dict"])
    return experiment, Servable(model, serving), describe(serving, command.config.run, command.config.ckpt_path)
