"""The folder of a command: a new run, one that is resumed, or one whose checkpoint is evaluated."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.internals import early_rank
from litlab.errors import UserError
from litlab.runs.folder import ROOT, RunFolder, new_run, read_json
from litlab.runs.results import differences, flatten, format_value
from litlab.util.yaml import read_mapping

# What may change when a run is resumed: its end, where it runs, where its data lies.
MAY_CHANGE = re.compile(
    r"trainer\.(max_epochs|max_steps|max_time|accelerator|devices|num_nodes|strategy|enable_progress_bar)"
    r"|trainer\.default_root_dir|test_after_fit|experiment"
    r"|data\.(path|test_path|cache_dir|num_workers|pin_memory|persistent_workers|prefetch_factor)"
)


@contextmanager
def start_run(config: Namespace) -> Iterator[RunFolder | None]:
    """Yield the folder that a fit writes: of the run that it resumes or a new one; None where nothing is kept.

    The first process holds its lock.

    Args:
        config: The settings of ``fit``.

    Raises:
        UserError: If another process trains there, or the experiment's name is no name of a folder.
    """
    trainer = config.trainer
    root = Path(trainer.default_root_dir or ".") / ROOT
    if trainer.logger is False or trainer.fast_dev_run:
        yield None
    elif not _is_first_process():
        yield RunFolder(Path(config.resume) if config.resume else root / config.experiment / "version_of_rank_0")
    else:
        run = RunFolder(Path(config.resume)) if config.resume else new_run(root, config.experiment)
        try:
            with run.lock():
                yield run
        except UserError:
            if not config.resume and not run.is_run():  # it was refused before it began
                shutil.rmtree(run.path)
            raise


def is_finished(command: Any) -> bool:
    """Return whether the run that a fit is to resume has nothing left to do, and say so.

    Args:
        command: The command, parsed.

    Raises:
        UserError: If its settings are not those of the run.
    """
    run = RunFolder(Path(command.config.resume))
    changes = find_changes(command, run)
    other = [change for key, change in changes.items() if not MAY_CHANGE.fullmatch(key)]
    if other:
        raise UserError(
            f"{run.name}: a resumed run keeps its settings ({', '.join(other)}); leave that out, or start a new "
            f"run from its weights with --init_from {run.path}"
        )
    grows = any(key.startswith("trainer.max_") for key in changes)
    if grows or read_json(run.status).get("status") != "finished":
        return False
    rank_zero_info(f"{run.name} is finished. Train it longer with --resume {run.path} --trainer.max_epochs N")
    return True


def choose_run(command: Any) -> RunFolder | None:
    """Return the run that the results of an evaluation belong to; None, with a line, where there is none.

    Args:
        command: The command, parsed.
    """
    config = command.config
    run = RunFolder(Path(config.run or ""))
    if config.trainer.logger is False:
        return None
    if not config.run or not run.is_run():
        rank_zero_info("The results are printed, but not saved: the checkpoint is in no run's folder")
        return None
    other = [change for key, change in find_changes(command, run).items() if _is_of_results(key)]
    if other:
        rank_zero_info(f"Settings differ from {run.name} ({', '.join(other)}): the results are not saved")
        return None
    return run


def find_changes(command: Any, run: RunFolder) -> dict[str, str]:
    """Return the settings of a command that differ from those of a run: by dotted key, the change as text."""
    settings = [flatten(config) for config in (read_mapping(run.config), command.settings())]
    changes = {key: list(map(format_value, values)) for key, values in differences(settings).items()}
    return {key: f"{key}: {was} -> {value}" for key, (was, value) in changes.items()}


def _is_of_results(key: str) -> bool:
    decides = key.startswith(("model", "data", "trainer.limit_"))
    return decides and key != "data.batch_size" and not MAY_CHANGE.fullmatch(key)


def _is_first_process() -> bool:
    """Return whether this is the process of the run that writes files, and not one launched as a further rank."""
    return not early_rank() and os.environ.get("NODE_RANK", "0") == "0"
