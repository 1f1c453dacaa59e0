"""``fit --resume auto``, and jobs that SLURM has requeued: the same command begins a run and goes on with it."""

import json
import os
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError
from litlab.runs import claim, lock
from litlab.runs.config_diff import OF_THE_COMMAND
from litlab.runs.find import newest_first, runs_of
from litlab.runs.folder import ROOT, RunFolder, read_json
from litlab.runs.masking import mask_command
from litlab.runs.resume_plan import Continuation, resumption
from litlab.runs.saved import checkpoint_in, saved_config, temporary_config
from litlab.util import team
from litlab.util.variables import CHOSEN_RUN


def chosen(plan: Continuation, config: dict[str, Any]) -> Continuation:
    """Goes on with the newest run of the experiment, or begins one.

    Of two commands that are started at once, one begins the run and the other one is refused.

    Args:
        plan: The command.
        config: Its config, parsed.

    Returns:
        The plan with the run to resume; or with a new one, whose folder is made and locked.

    Raises:
        UserError: If another process trains that run.
    """
    if config.get("check"):
        raise UserError("--check looks at a fit from its beginning: leave --resume out.")
    root = root_of(config["trainer"])
    claim.check_experiment(root, config["experiment"])
    folder = root / config["experiment"]
    if not lock.is_first_process():
        found = os.environ.get(CHOSEN_RUN)
        run = _newest(plan, folder) if found is None else RunFolder(Path(found)) if found else None
        return _go_on(run, plan, config) if run is not None else plan
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock.alone_in(folder):
            starting = next((path for path in _not_yet_runs(folder) if lock.is_held_elsewhere(path)), None)
            if starting is not None and plan.automatic:
                raise UserError(f"{RunFolder(starting).name} is being started by another process: wait for its end.")
            run = _newest(plan, folder)
            os.environ[CHOSEN_RUN] = "" if run is None else str(run.path)
            if run is not None:
                return _go_on(run, plan, config)
            return Continuation(plan.arguments, plan.command, new=claim.new_run(root, config["experiment"]))
    except OSError as error:
        raise UserError(f"experiment: {folder} can't be written: {error.strerror}.") from error


def root_of(config: dict[str, Any]) -> Path:
    """Where runs go, by the section ``trainer`` of a config."""
    return Path(config.get("default_root_dir") or ".") / ROOT


def _newest(plan: Continuation, folder: Path) -> RunFolder | None:
    """The run to go on with; None where there is none, or it was stopped before its first checkpoint."""
    runs = runs_of(folder)
    if plan.requeued:
        runs = newest_first(run for run in runs if _is_of_this_job(run, plan.command))
    if not runs:
        return None
    run = runs[0]
    try:
        checkpoint_in(run, saved_config(run)[1], "last")
    except UserError as error:
        rank_zero_info(f"{error} A new run is started.")
        return None
    return run


def _is_of_this_job(run: RunFolder, arguments: list[str]) -> bool:
    try:
        status, made = read_json(run.status), read_json(run.provenance)
    except UserError:  # the damaged file of another run
        return False
    command = mask_command(team.command(*arguments))
    return status.get("slurm_job_id") == os.environ.get("SLURM_JOB_ID") and made.get("command") == command


def _not_yet_runs(folder: Path) -> list[Path]:
    return [path for path in folder.glob("version_*") if path.is_dir() and not RunFolder(path).is_run()]


def _go_on(run: RunFolder, plan: Continuation, config: dict[str, Any]) -> Continuation:
    """Resumes a run with the settings of the command: all that it says holds, and none of its lists is appended twice.

    What the model has been told by the data, and is null in the command, is the run's.
    """
    if plan.requeued:
        rank_zero_info(f"SLURM has requeued the job: it goes on with {run.name}.")
    else:
        rank_zero_info(f"--resume auto: the newest run is {run.name}.")
    settings = {name: value for name, value in config.items() if name not in OF_THE_COMMAND}
    model = settings["model"]
    told = {name: value for name, value in (model.get("init_args") or {}).items() if value is not None}
    settings["model"] = {**model, "init_args": told}
    found = resumption(run, ["--config", str(temporary_config(json.dumps(settings)))])
    return Continuation(
        arguments=found.arguments, command=plan.command, run=run, checkpoint=found.checkpoint, saved=found.saved,
        resumes=True,
    )  # fmt: skip
