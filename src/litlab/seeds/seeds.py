"""``python -m PACKAGE fit --seeds 0,1,2``: the same fit with several seeds; mean and spread of its metrics."""

import os
import re
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from litlab.cli.bases import with_bases
from litlab.cli.named_modules import modules_named, values_of
from litlab.errors import UserError
from litlab.runs import lock
from litlab.runs.folder import ROOT, RunFolder, read_json, write_json
from litlab.runs.git import work_tree
from litlab.runs.masking import mask_command
from litlab.runs.seed_group import SeedGroup
from litlab.seeds.fits import PASSED_ON, Fits
from litlab.seeds.settings import check_flags, group_for, read_settings, settings_of
from litlab.seeds.summary import write_summary
from litlab.util import team
from litlab.util.options import Options, answer

MOST = 2**32 - 1  # what numpy takes
STOPPED = tuple(128 + signum for signum in PASSED_ON)
DESCRIPTION = """\
Run the same fit with several seeds, one after another, and show mean, standard deviation and 95 %% confidence
interval of each metric. All other arguments are those of `fit`; see `fit --help`. Ctrl-C stops it; the same
command continues it, and one with more seeds adds to it (docs/seeds.md).

  %(prog)s --config configs/mine.yaml --seeds 0,1,2
"""


def main(arguments: list[str]) -> int:
    """Run ``fit --seeds``.

    Args:
        arguments: What follows ``fit`` on the command line.

    Returns:
        The exit code: 0; 1 where the training of a seed failed; 2 after one line on what is wrong; 128 and the number
        of the signal where one stopped it; that of a fit that failed before its training.
    """
    return answer(_seeds, arguments)


def _seeds(arguments: list[str]) -> int:
    options = Options("fit", DESCRIPTION)
    options.add_argument("--seeds", metavar="S,S", type=read_seeds, required=True, help="two or more, such as 0,1,2")
    chosen, flags = options.parse_known_args(arguments)
    check_flags(flags)
    _check_launcher()
    with Fits() as fits:
        code, printed = fits.read("fit", *flags, "--print_config")
        if code:
            return code
        config = read_settings(printed)
        group = group_for(config)
        try:
            _begin(group, chosen.seeds, config, team.command("fit", *arguments))
            code = _run(fits, group, chosen.seeds, config["experiment"], flags)
        finally:
            lock.release()
    if not group.runs():  # the first fit was refused, and has said why
        _discard(group)
        return code
    write_summary(group)
    if code in STOPPED:
        name = signal.Signals(code - 128).name
        print(f"{name}: stopped; the same command continues.", file=sys.stderr)
    return code


def read_seeds(text: str) -> list[int]:
    """Read the seeds that a user gives.

    Raises:
        UserError: If they are not two or more different whole numbers.
    """
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isdecimal() and word.isascii() and int(word) <= MOST):
            what = f"'{word}' is not a seed" if word else "a seed is missing"
            raise UserError(f"--seeds: {what}; give whole numbers from 0 to {MOST}, such as 0,1,2")
    seeds = [int(word) for word in words]
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise UserError(f"--seeds: {seed} is named twice; remove one of them")
    if len(seeds) == 1:
        raise UserError(f"--seeds: {text} is one seed; give two or more, or use --seed_everything {text}")
    return seeds


def _check_launcher() -> None:
    """Refuse to be one of several processes, each of which would run all seeds."""
    ranks = [name for name in ("RANK", "LOCAL_RANK") if name in os.environ]
    tasks = os.environ.get("SLURM_NTASKS", "1")
    if tasks != "1" and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        ranks.append("SLURM_NTASKS")
    if ranks:
        raise UserError(
            f"--seeds: start it without torchrun or srun ({ranks[0]} is set); each fit starts its processes"
        )


def _begin(group: SeedGroup, seeds: list[int], config: dict[str, Any], command: list[str]) -> None:
    """Lock the group, and write or complete its file.

    Raises:
        UserError: If another command works on it, or it can't be written to.
    """
    try:
        group.path.mkdir(parents=True, exist_ok=True)
        locked = lock.hold(group.path)
    except OSError as error:
        raise UserError(f"experiment: {group.path} can't be written to ({error.strerror}); choose another") from error
    if not locked:
        raise UserError(f"{group.name}: another command works on these seeds; wait until it ends, or stop it")
    content = group.content()
    known = content.get("seeds") or []
    write_json(group.file, {
        "command": mask_command(command),
        "seeds": [*known, *(seed for seed in seeds if seed not in known)],
        "runs": content.get("runs") or {},
        "metrics": content.get("metrics") or {},
        "config": settings_of(config),
    })  # fmt: skip
    if line := _other_code(group.runs().values()):
        print(f"warning: {group.name}: {line}", file=sys.stderr)


def _other_code(runs: Iterable[RunFolder]) -> str:
    """Return how the code differs from that of the runs before; empty if it does not, or there are none."""
    code = work_tree()
    for run in runs:
        made = read_json(run.provenance)
        before = made.get("commit"), (made.get("uncommitted") or {}).get("sha256", "")
        if made and before != (code.commit, code.digest):
            return f"the code has changed since {run.name}: what differs between the seeds may be the code"
    return ""


def _run(fits: Fits, group: SeedGroup, seeds: list[int], experiment: str, flags: list[str]) -> int:
    """Run the fits that are left; return the exit code."""
    failed = 0
    for number, seed in enumerate(seeds, 1):
        run = group.runs().get(seed)
        before = run.state() if run is not None else {}
        how = ""
        if before.get("status") == "finished":
            print(f"seed {seed} ({number} of {len(seeds)}): finished before")
            continue
        if run is not None and _can_be_resumed(run, before):
            how = ", resumed"
            arguments = ["fit", "--resume", str(run.path), *_allowed(flags)]
        else:
            if before.get("status") == "failed":
                how = f", from the start, as it failed ({before.get('reason')})"
            run, before = _new_run(group, seed), {}
            folder = f"{experiment}/{group.path.name}/{run.path.parent.name}"
            arguments = ["fit", *flags, f"--experiment={folder}", f"--seed_everything={seed}"]
        print(f"\nseed {seed} ({number} of {len(seeds)}){how}: {run.name}")
        code = fits.run(*arguments)
        if code in STOPPED:
            return code
        state = run.state() if run.is_run() else {}
        if code and not _began(before, state):  # it would be the same with any seed
            return code
        if code:
            failed = 1
            what = state.get("reason") or f"exit code {code}"
            print(f"seed {seed} failed ({what}); the other seeds go on.", file=sys.stderr)
        elif state.get("status") != "finished":
            raise UserError(f"--seeds: the fit has left no finished run in {run.path}; what it did can't be counted")
    return failed


def _began(before: dict[str, Any], state: dict[str, Any]) -> bool:
    """Return whether a fit came as far as its training, by the status of its run before and after."""
    return any(state.get(name) != before.get(name) for name in ("started", "status"))


def _can_be_resumed(run: RunFolder, state: dict[str, Any]) -> bool:
    """Return whether a run was stopped or killed and has a checkpoint, or failed in its test alone."""
    stopped = state.get("status") != "failed" or state.get("test") == "pending"
    return stopped and run.config.is_file() and any(run.checkpoints.glob("*.ckpt"))


def _allowed(flags: list[str]) -> list[str]:
    """Return the flag by which a resumed run may use the modules that the command names."""
    named = {name for value in values_of(flags, "--allow_modules") for name in value.split(",")}
    modules = sorted(named | modules_named(with_bases(flags)))  # which the run's own config may name, too
    return [f"--allow_modules={','.join(modules)}"] if modules else []


def _new_run(group: SeedGroup, seed: int) -> RunFolder:
    """Note in the group's file which run the next fit of a seed will make, and return it."""
    folder = group.path / f"seed_{seed}"
    taken = [re.fullmatch(r"version_(\d+)", path.name) for path in folder.glob("version_*")]
    number = max((int(found[1]) + 1 for found in taken if found), default=0)  # as a fit numbers it
    content = group.content()
    runs = {**content["runs"], str(seed): f"{folder.name}/version_{number}"}
    write_json(group.file, {**content, "runs": runs})
    return RunFolder(folder / f"version_{number}")


def _discard(group: SeedGroup) -> None:
    """Remove the folder of a group without runs, and those around it that are empty then."""
    for file in (group.file, group.path / lock.NAME):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # one that is not empty stays
        for folder in (group.path, *group.path.parents):
            folder.rmdir()
            if folder.name == ROOT.name:
                break
