"""``fit --resume auto``, and jobs that SLURM has requeued: the same command starts a run and resumes it."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError
from litlab.runs import claim, lock
from litlab.runs.config_diff import OF_THE_COMMAND
from litlab.runs.find import newest_first, runs_of
from litlab.runs.folder import RunFolder, read_json, read_or_note, root_of
from litlab.runs.masking import mask_command
from litlab.runs.resume_plan import ResumePlan, resume_run
from litlab.runs.saved import checkpoint_in, saved_config, temporary_config
from litlab.util import team
from litlab.util.variables import CHOSEN_RUN


def choose_run(plan: ResumePlan, config: dict[str, Any]) -> ResumePlan:
    """Resume the newest run of the experiment, or start one.

    Of two commands that are started at once, one starts the run and the other one is refused.

    Args:
        plan: The command.
        config: Its config, parsed.

    Returns:
        The plan with the run to resume; or with a new one, whose folder is made and locked.

    Raises:
        UserError: If another process trains that run.
    """
    for name in ("check", "plan"):
        if config.get(name):
            raise UserError(f"{name}: it tries a fit from its beginning; leave --resume out.")
    root = root_of(config["trainer"])
    claim.check_experiment(root, config["experiment"])
    folder = root / config["experiment"]
    if not lock.is_first_process():
        found = os.environ.get(CHOSEN_RUN)
        run = _newest(plan, folder) if found is None else RunFolder(Path(found)) if found else None
        return _resume(run, plan, config) if run is not None else plan
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock.folder_lock(folder):
            others = (path for path in folder.glob("version_*") if path.is_dir() and not RunFolder(path).is_run())
            starting = next((path for path in others if lock.is_held_elsewhere(path)), None)
            if starting is not None and plan.automatic:
                raise UserError(f"{RunFolder(starting).name} is being started by another process; wait until it ends.")
            run = _newest(plan, folder)
            os.environ[CHOSEN_RUN] = "" if run is None else str(run.path)
            if run is not None:
                return _resume(run, plan, config)
            return ResumePlan(plan.arguments, plan.command, new=claim.new_run(root, config["experiment"]))
    except OSError as error:
        raise UserError(f"experiment: {folder} can't be written to ({error.strerror}); choose another name.") from error


def _newest(plan: ResumePlan, folder: Path) -> RunFolder | None:
    """Return the run to resume; None where there is none, or it was stopped before its first checkpoint."""
    runs = runs_of(folder)
    if plan.requeued:
        runs = newest_first(run for run in runs if _is_of_this_job(run, plan.command))
    if not runs:
        return None
    try:
        checkpoint_in(runs[0], saved_config(runs[0])[1], "last")
    except UserError as error:
        rank_zero_info(f"{error} A new run is started.")
        return None
    return runs[0]


def _is_of_this_job(run: RunFolder, arguments: list[str]) -> bool:
    # The files of another run may be damaged: then it is not this job's.
    status, made = (read_or_note([], read_json, file) for file in (run.status, run.provenance))
    command = mask_command(team.command(*arguments))
    return status.get("slurm_job_id") == os.environ.get("SLURM_JOB_ID") and made.get("command") == command


def _resume(run: RunFolder, plan: ResumePlan, config: dict[str, Any]) -> ResumePlan:
    """Resume a run with the settings of the command, resolved: a list that it appends to is not appended to twice.

    What the model gets from the data, and is null in the command, is the run's.
    """
    if plan.requeued:
        rank_zero_info(f"SLURM has requeued the job: it resumes {run.name}.")
    else:
        rank_zero_info(f"--resume auto: the newest run is {run.name}.")
    settings = {name: value for name, value in config.items() if name not in OF_THE_COMMAND}
    init_args = settings["model"].get("init_args") or {}
    known = {name: value for name, value in init_args.items() if value is not None}
    settings["model"] = {**settings["model"], "init_args": known}
    found = resume_run(run, ["--config", str(temporary_config(json.dumps(settings)))])
    return replace(found, command=plan.command)
