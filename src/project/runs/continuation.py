"""What a command goes on from: a run to resume, a run or a checkpoint to evaluate."""

import atexit
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only

from project.checkpoints import load_checkpoint
from project.errors import UserError
from project.runs.checkpoint_files import newest_intact
from project.runs.compare import read_config
from project.runs.folder import RunFolder, all_runs, find_run, owner_of, read_json
from project.runs.masking import mask_command


@dataclass(frozen=True)
class Continuation:
    """A command and what it goes on from.

    Args:
        arguments: What the parser is to read: the command line, with the config of the run in front.
        command: The command line with the run named by its folder: other processes of it must not find another one.
        run: The run that it writes into; None for a new one, or none.
        checkpoint: The checkpoint to load; None where the config tells it.
        saved: The config in front of the command line; {} where the command brings its own.
        resumes: Whether the run is trained on.
    """

    arguments: list[str]
    command: list[str]
    run: RunFolder | None = None
    checkpoint: Path | None = None
    saved: dict[str, Any] = field(default_factory=dict)
    resumes: bool = False


def continuation(arguments: list[str]) -> Continuation:
    """Finds what a command goes on from.

    Args:
        arguments: The command line, from the verb on.

    Raises:
        UserError: If there is no such run, or none of its checkpoints can be used.
    """
    verb, *flags = arguments
    if verb != "fit":
        return _evaluation(verb, flags)
    wanted, rest = _take("--resume", flags)
    if wanted is not None:
        return _resumption(find_run(wanted), rest)
    if int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0 and (run := _requeued(arguments)):
        rank_zero_info(f"SLURM has requeued the job: it goes on with {run.name}.")
        return _resumption(run, rest)
    return Continuation(arguments, arguments)


def _resumption(run: RunFolder, flags: list[str]) -> Continuation:
    for flag in ("--ckpt_path", "--init_from"):
        if _take(flag, flags)[0] is not None:
            raise UserError(f"--resume goes on from the run's own newest checkpoint: leave {flag} out.")
    if rank_zero_only.rank == 0:  # pyright: ignore[reportFunctionMemberAccess]
        state = run.state()
        if state.get("status") == "running" and state.get("pid") != os.getpid():
            raise UserError(f"{run.name} is still running (process {state['pid']}): wait for its end, or stop it.")
        if state.get("status") == "running?":
            rank_zero_info(f"{run.name} was last running on {state.get('host')}: make sure that it no longer is.")
    saved = read_config(run.config)
    checkpoint = _checkpoint(run, saved, "last")
    return Continuation(
        arguments=["fit", "--config", str(run.config), *flags],
        command=["fit", "--resume", str(run.path), *flags],
        run=run,
        checkpoint=checkpoint,
        saved=saved,
        resumes=True,
    )


def _evaluation(verb: str, flags: list[str]) -> Continuation:
    wanted, rest = _take("--run", flags)
    which, rest = _take("--ckpt_path", rest)
    if wanted is None and which is not None and not {"--config", "-c"} & {flag.partition("=")[0] for flag in rest}:
        if which not in ("best", "last") and not Path(which).is_file():
            raise UserError(f"--ckpt_path {which}: no such file.")
        wanted, which = which, None  # a checkpoint alone
    if wanted is None:
        run = owner_of(Path(which)) if which is not None else None
        return Continuation([verb, *flags], [verb, *flags], run)
    if Path(wanted).is_file():
        if which is not None:
            raise UserError(f"--run {wanted} is a checkpoint already: leave --ckpt_path out.")
        checkpoint = Path(wanted)
        run = owner_of(checkpoint)
    else:
        run = find_run(wanted)
        named = None if which in (None, "best", "last") else Path(str(which))
        if named is not None and not named.is_file():
            raise UserError(f"--ckpt_path {named}: no such file; give best, last or a file.")
        checkpoint = named or _checkpoint(run, read_config(run.config), which)
        rank_zero_info(f"{run.name}: {checkpoint.name}")
    config = run.config if run is not None else _config_in(checkpoint)
    command = [verb, "--run", str(run.path if run else checkpoint), *rest]
    return Continuation(
        arguments=[verb, "--config", str(config), *rest],
        command=[*command, "--ckpt_path", str(checkpoint)] if run else command,
        run=run,
        checkpoint=checkpoint,
        saved=read_config(config),
    )


def checkpoint_of(text: str) -> Path:
    """The checkpoint that a user means: a file, or a run's best one, its newest where it has no best.

    Raises:
        UserError: If there is none.
    """
    if Path(text).is_file():
        return Path(text)
    run = find_run(text)
    return _checkpoint(run, read_config(run.config), None)


def _config_in(checkpoint: Path) -> Path:
    """A file with the config that a checkpoint holds, for one that lies in no run folder; it goes with the process."""
    text = load_checkpoint(str(checkpoint)).get("config")
    if not isinstance(text, str):
        raise UserError(f"{checkpoint} lies in no run folder and holds no config: give --config and --ckpt_path.")
    descriptor, name = tempfile.mkstemp(suffix=".yaml")
    atexit.register(Path(name).unlink, missing_ok=True)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return Path(name)


def _checkpoint(run: RunFolder, saved: dict[str, Any], which: str | None) -> Path:
    """The checkpoint of a run: ``last``, ``best``, or None for the best where there is one, else the last."""
    settings = (saved.get("checkpoint") or {}).get("init_args") or {}
    folder = Path(settings.get("dirpath") or run.checkpoints)
    newest, notes = newest_intact(folder)
    if rank_zero_only.rank == 0:  # pyright: ignore[reportFunctionMemberAccess]
        for note in notes:
            print(f"warning: {note}", file=sys.stderr)
    if newest is None:
        what = "none that is whole" if notes else "none yet: start it again"
        raise UserError(f"{run.name} has no checkpoint to go on from: {folder} holds {what}.")
    if which == "last":
        return newest
    states = torch.load(newest, map_location="cpu", weights_only=True, mmap=True).get("callbacks") or {}
    paths = (state.get("best_model_path") for state in states.values())
    best = next((folder / Path(path).name for path in paths if path), None)
    if best is not None and best.is_file():
        return best
    if which == "best":
        raise UserError(f"{run.name} has no best checkpoint in {folder}: take --ckpt_path last.")
    return newest


def _requeued(arguments: list[str]) -> RunFolder | None:
    """The run that this command had begun in this SLURM job; None if it had not come so far."""
    command = mask_command(["python", "-m", "project", *arguments])
    for run in all_runs():
        same_job = read_json(run.status).get("slurm_job_id") == os.environ.get("SLURM_JOB_ID")
        if same_job and read_json(run.provenance).get("command") == command:
            return run
    return None


def _take(flag: str, arguments: list[str]) -> tuple[str | None, list[str]]:
    """The value of a flag, None where it is not given, and the arguments without it; the last one counts."""
    value, rest = None, []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument == flag and position + 1 < len(arguments):
            value = arguments[position + 1]
            position += 2
            continue
        if argument.startswith(f"{flag}="):
            value = argument.partition("=")[2]
        else:
            rest.append(argument)
        position += 1
    return value, rest
