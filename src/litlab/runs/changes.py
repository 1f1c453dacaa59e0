"""Whether a command has the settings and the data of the run that it resumes or evaluates."""

import re
import shlex
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_record
from litlab.runs.results import find_differences, flatten, format_value

# What may change when a run is resumed: when it ends, where it runs, where its data lies. init_from
# has no effect any more: the weights come from the checkpoint.
MAY_CHANGE = re.compile(
    r"trainer\.(max_epochs|max_steps|max_time|accelerator|devices|num_nodes|strategy)"
    r"|trainer\.(enable_progress_bar|default_root_dir)|test_after_fit|experiment|init_from"
    r"|data\.(path|test_path|cache_dir|num_workers|pin_memory|persistent_workers|prefetch_factor)"
)


def check_settings(command: Any) -> None:
    """Refuse to resume a run with other settings than its own.

    Raises:
        UserError: Names the settings, and what to do.
    """
    run = command.line.run
    changes = find_changes(command, run)
    other = [change for key, change in changes.items() if not MAY_CHANGE.fullmatch(key)]
    if other:
        raise UserError(
            f"{run.name}: a resumed run keeps its settings ({', '.join(other)}); leave that out, "
            f"or start a new run from its weights with --init_from {shlex.quote(str(run.path))}"
        )


def is_finished(command: Any) -> bool:
    """Return whether the run that is resumed has nothing left to do, and say so."""
    # The lock is held: no other process is about to change what the file says
    run = command.line.run
    if read_record(run.status).get("status") != "finished":
        return False
    # With a later end there is something left to do
    if any(key.startswith("trainer.max_") for key in find_changes(command, run)):
        return False
    longer = f"--resume {shlex.quote(str(run.path))} --trainer.max_epochs N"
    rank_zero_info(f"{run.name} is finished. Train it longer with {longer}")
    return True


def saves_results(command: Any, changes: dict[str, str]) -> bool:
    """Return whether the results of an evaluation go into the run of its checkpoint; if not, say
    why.

    Args:
        command: The command line, parsed.
        changes: As of `find_changes`.
    """
    run = command.line.run
    # The user has asked for nothing to be written, and needs no reason
    if command.config.trainer.logger is False:
        return False
    if run is None:
        rank_zero_info(
            "The results are printed, but not saved: the checkpoint is in no run's folder"
        )
        return False

    # All numbers of a run belong to its own settings
    other = [change for key, change in changes.items() if is_of_results(key)]
    if other:
        rank_zero_info(
            f"Settings differ from {run.name} ({', '.join(other)}): the results are not saved"
        )
    return not other


def find_changes(command: Any, run: RunFolder) -> dict[str, str]:
    """Return the settings of a command that differ from those of a run: by dotted key, as text.

    The config of the run is parsed like the command, so that a setting that was not there when the
    run was started has its default in both.
    """
    # The run's settings first, so that a change reads "16 -> 32"
    settings = [flatten(command.read_settings(run.config)), flatten(command.get_settings())]
    return {
        key: f"{key}: {format_value(was)} -> {format_value(value)}"
        for key, (was, value) in find_differences(settings).items()
    }


def check_data(run: RunFolder, trainer: Trainer) -> None:
    """Refuse data that is not what a run was trained on: the same settings, with other contents.

    Args:
        run: The run.
        trainer: The trainer of this command, its data set up.

    Raises:
        UserError: If the fingerprints differ.
    """
    # A DataModule of a team's own need not have a fingerprint: then there is nothing to compare
    data: Any = getattr(trainer, "datamodule", None)
    origin = read_record(run.provenance)
    # What a fit accepted with --data_changed counts for those that follow
    newest = [origin, *origin.get("continued", [])][-1].get("data", {})
    before, now = newest.get("fingerprint"), str(getattr(data, "fingerprint", ""))
    if before and now and before != now:
        raise UserError(
            f"data: the contents of {data.source_name} have changed since {run.name} was trained "
            f"on them (fingerprint {before}, now {now}); bring back what was there, or accept it "
            "with --data_changed"
        )


def is_of_results(key: str) -> bool:
    """Return whether an evaluation with another value of a setting is not one of the run."""
    # The size of a batch changes nothing, and where the data lies neither: `check_data` compares
    # its contents
    decides = key.startswith(("model", "data", "trainer.limit_"))
    return decides and key != "data.batch_size" and not MAY_CHANGE.fullmatch(key)


def is_of_data(key: str) -> bool:
    """Return whether a setting chooses other data than that of the run."""
    # Another path is meant to lead to other data in an evaluation; a resumed fit never asks this
    return key.startswith("data") and (is_of_results(key) or key.endswith("path"))
