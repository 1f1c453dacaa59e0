"""The folder of a command: a new run, one that is resumed, or one whose checkpoint is evaluated."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError
from litlab.runs.folder import ROOT, RunFolder, is_first_process, new_run, read_json
from litlab.runs.settings import differences, flatten, format_value, read_config

# What may change when a run is resumed: its end, where it runs, where its data lies.
MAY_CHANGE = (
    "trainer.max_epochs", "trainer.max_steps", "trainer.max_time", "trainer.accelerator", "trainer.devices",
    "trainer.num_nodes", "trainer.strategy", "trainer.enable_progress_bar", "trainer.default_root_dir",
    "test_after_fit", "threads", "experiment", "data.path", "data.test_path", "data.cache_dir", "data.num_workers",
    "data.pin_memory", "data.persistent_workers", "data.prefetch_factor",
)  # fmt: skip

Changes = dict[str, list[Any]]  # by key: the value in the run and the value now


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
    elif not is_first_process():
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
    other = {key: values for key, values in changes.items() if key not in MAY_CHANGE}
    if other:
        raise UserError(
            f"{run.name}: a resumed run keeps its settings ({describe_changes(other)}); leave that out, or start a new "
            f"run from its weights with --init_from {run.path}"
        )
    grows = any(key.startswith("trainer.max_") for key in changes)
    if grows or read_json(run.status).get("status") != "finished":
        return False
    metrics = read_json(run.metrics)
    rank_zero_info(
        f"{run.name} is finished: {metrics.get('epochs')} epochs, {metrics.get('steps')} steps. Train it longer with "
        f"--resume {run.path} --trainer.max_epochs N"
    )
    return True


def choose_run(command: Any) -> RunFolder | None:
    """Return the run that the results of an evaluation belong to; None, with a line, where there is none.

    Args:
        command: The command, parsed.
    """
    config = command.config
    run = RunFolder(Path(config.run)) if config.run else None
    if config.trainer.logger is False:
        return None
    if run is None or not run.is_run():
        rank_zero_info("The results are printed, but not saved: the checkpoint is in no run's folder")
        return None
    changes = find_changes(command, run)
    other = {key: values for key, values in changes.items() if _is_of_results(key)}
    if other:
        rank_zero_info(f"Settings differ from {run.name} ({describe_changes(other)}): the results are not saved")
        return None
    return run


def find_changes(command: Any, run: RunFolder) -> Changes:
    """Return the settings of a command that differ from those of a run, by dotted key."""
    then = flatten(read_config(run.config))
    now = flatten(command.settings())
    now = {
        key: int(value) if key == "trainer.devices" and str(value).isdecimal() else value for key, value in now.items()
    }
    return differences([{key: then.get(key) for key in now}, now])


def describe_changes(changes: Changes) -> str:
    """Return changes in one line."""
    return ", ".join(f"{key}: {format_value(then)} -> {format_value(now)}" for key, (then, now) in changes.items())


def _is_of_results(key: str) -> bool:
    if key in MAY_CHANGE or key == "data.batch_size":
        return False
    return key.partition(".")[0] in ("model", "data") or key.startswith("trainer.limit_")
