"""What a command starts from: a run to resume, a run or a checkpoint to evaluate."""

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from litlab.artifact import is_exported, read_manifest
from litlab.artifact.manifest import CHECKPOINT
from litlab.errors import UserError
from litlab.runs import claim
from litlab.runs.compare import read_config
from litlab.runs.find import find_run, owner_of
from litlab.runs.folder import RunFolder, read_or_set_aside
from litlab.runs.missing_classes import check_classes
from litlab.runs.saved import checkpoint_in, config_in, saved_config
from litlab.runs.seed_group import how_to_continue


@dataclass(frozen=True)
class ResumePlan:
    """A command and what it starts from.

    Args:
        arguments: What the parser is to read: the command line, with the config of the run in front.
        command: The command line with the run named by its folder: other processes of it must not find another one.
        run: The run that it writes into; None for a new one, or none.
        checkpoint: The checkpoint to load; None where the config names it.
        saved: The config in front of the command line; {} where the command brings its own.
        resumes: Whether the training of the run continues.
        automatic: Whether the run is still to be chosen: the newest one of the experiment, if it is not finished.
        requeued: Whether it is still to be chosen: the one that this command has started in this SLURM job.
        new: The folder that was made for a new run; None where none was yet.
        exported: The folder of an exported model that takes the place of the weights, if any.
    """

    arguments: list[str]
    command: list[str]
    run: RunFolder | None = None
    checkpoint: Path | None = None
    saved: dict[str, Any] = field(default_factory=dict)
    resumes: bool = False
    automatic: bool = False
    requeued: bool = False
    new: RunFolder | None = None
    exported: Path | None = None


def resume_plan(arguments: list[str]) -> ResumePlan:
    """Find what a command starts from.

    Args:
        arguments: The command line, from the subcommand on.

    Raises:
        UserError: If there is no such run, or none of its checkpoints can be used.
    """
    subcommand, *flags = arguments
    if subcommand != "fit":
        return _evaluation(subcommand, flags)
    wanted, rest = take_flag("--resume", flags)
    if wanted == "auto":
        return ResumePlan(["fit", *rest], arguments, automatic=True)
    if wanted is not None:
        for flag in ("--ckpt_path", "--init_from"):
            if take_flag(flag, flags)[0] is not None:
                raise UserError(f"resume: the run continues from its own newest checkpoint; leave {flag} out.")
        run = find_run(wanted)
        if line := how_to_continue(run):
            rank_zero_info(line)
        return resume_run(run, rest)
    restarts = os.environ.get("SLURM_RESTART_COUNT", "")
    return ResumePlan(arguments, arguments, requeued=restarts.isdecimal() and int(restarts) > 0)


def resume_run(run: RunFolder, flags: list[str]) -> ResumePlan:
    """Lock a run and find the checkpoint to resume it from.

    Args:
        run: The run.
        flags: What follows the config of the run on the command line.

    Raises:
        UserError: If another process trains it, or it has no checkpoint.
    """
    claim.hold(run)
    for file in (run.metrics, run.provenance):
        read_or_set_aside(file)
    state = read_or_set_aside(run.status)
    if state.get("status") == "running" and state.get("host") != socket.gethostname():
        rank_zero_info(f"{run.name} was last running on {state.get('host')}: make sure that it no longer is.")
    _, saved = saved_config(run, repair=True)
    check_classes(run, run.name, saved)
    return ResumePlan(
        arguments=["fit", "--config", str(run.config), *flags],
        command=["fit", "--resume", str(run.path), *flags],
        run=run,
        checkpoint=checkpoint_in(run, saved, "last"),
        saved=saved,
        resumes=True,
    )


def _evaluation(subcommand: str, flags: list[str]) -> ResumePlan:
    wanted, rest = take_flag("--run", flags)
    which, rest = take_flag("--ckpt_path", rest)
    if wanted is None and which is not None and not {"--config", "-c"} & {flag.partition("=")[0] for flag in rest}:
        if which not in ("best", "last") and not Path(which).is_file():
            raise UserError(f"ckpt_path: {which}: no such file.")
        wanted, which = which, None  # a checkpoint alone
    if wanted is None:
        run = owner_of(Path(which)) if which is not None else None
        return ResumePlan([subcommand, *flags], [subcommand, *flags], run)
    if is_exported(wanted):
        return _exported(subcommand, Path(wanted), which, rest)
    if Path(wanted).is_file():
        if which is not None:
            raise UserError(f"run: {wanted} is a checkpoint already; leave --ckpt_path out.")
        checkpoint = Path(wanted)
        run = owner_of(checkpoint)
        config = saved_config(run)[0] if run is not None else config_in(checkpoint)
    else:
        run = find_run(wanted)
        config, saved = saved_config(run)
        named = None if which in (None, "best", "last") else Path(str(which))
        if named is not None and not named.is_file():
            raise UserError(f"ckpt_path: {named}: no such file; give best, last or a file.")
        checkpoint = named or checkpoint_in(run, saved, which)
        rank_zero_info(f"{run.name}: {checkpoint.name}")
    saved = read_config(config)
    check_classes(run, run.name if run else str(checkpoint), saved)
    command = [subcommand, "--run", str(run.path if run else checkpoint), *rest]
    return ResumePlan(
        arguments=[subcommand, "--config", str(config), *rest],
        command=[*command, "--ckpt_path", str(checkpoint)] if run else command,
        run=run,
        checkpoint=checkpoint,
        saved=saved,
    )


# Exports compute on the CPU, with inputs in full precision, wherever and however the run was trained.
_OF_EXPORTS = (
    "--trainer.accelerator=cpu", "--trainer.devices=1", "--trainer.num_nodes=1", "--trainer.strategy=auto",
    "--trainer.precision=32-true",
)  # fmt: skip


def _exported(subcommand: str, folder: Path, which: str | None, flags: list[str]) -> ResumePlan:
    """Return the plan for an exported model, which brings its settings along."""
    if subcommand == "validate" or which is not None:
        raise UserError(f"run: {folder} is an exported model; use predict or test, without --ckpt_path.")
    read_manifest(folder)  # before anything of it is used
    checkpoint = folder / CHECKPOINT
    config = config_in(checkpoint)
    saved = read_config(config)
    check_classes(None, str(folder), saved)
    return ResumePlan(
        arguments=[subcommand, "--config", str(config), *_OF_EXPORTS, *flags],
        command=[subcommand, "--run", str(folder), *flags],
        checkpoint=checkpoint,
        saved=saved,
        exported=folder,
    )


def take_flag(flag: str, arguments: list[str]) -> tuple[str | None, list[str]]:
    """Return the value of a flag, None where it is not given, and the arguments without it; the last one counts."""
    value, rest = None, []
    words = iter(arguments)
    for word in words:
        if word == flag and (following := next(words, None)) is not None:
            value = following
        elif word.startswith(f"{flag}="):
            value = word.partition("=")[2]
        else:
            rest.append(word)
    return value, rest
