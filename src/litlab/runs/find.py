"""Find runs: all of them, or the one that the user names."""

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs.folder import ROOT, RunFolder, find_owner, read_or_note, read_record
from litlab.util.text import nearest

RUN_HELP = "a run or its folder, an experiment (its newest run), last, or a checkpoint"


def list_runs(root: Path = ROOT, groups: bool = False) -> list[RunFolder]:
    """Return all runs below a folder, the newest first, those of unknown age last.

    Links are not followed.

    Args:
        root: The folder.
        groups: Whether a group below it stands for its runs.
    """
    runs: list[RunFolder] = []
    for folder, names, _ in os.walk(root):
        run = RunFolder(Path(folder))
        # There are no runs inside a run: its subfolders are left out
        if run.is_run() or (groups and run.is_group() and run.path != root):
            names.clear()
            runs.append(run)
    return sorted(runs, key=_find_start, reverse=True)


def _find_start(run: RunFolder) -> tuple[float, str]:
    """Return when a run was started, in seconds; equal times go by name."""
    text = _read_status(run).get("started")
    # Not as text: clocks go back in autumn, and a colleague's may have another offset to UTC
    return datetime.fromisoformat(text).timestamp() if text else 0.0, run.name


def _read_status(run: RunFolder) -> dict[str, Any]:
    """Return what the status of one of several runs says; {} where the file is damaged."""
    return read_or_note([], read_record, run.status)


def find_resumable(root: Path, experiment: str, needs_job: bool = False) -> RunFolder | None:
    """Return the run of an experiment that can be resumed: this SLURM job's, else the newest with a
        checkpoint.

    Args:
        root: The folder of all runs.
        experiment: Its name.
        needs_job: Whether only a run of this job will do.
    """
    # Not those of its groups, which `fit --seeds` goes on with itself
    runs = [run for run in list_runs(root / experiment) if run.path.parent == root / experiment]
    runs = [run for run in runs if any(run.checkpoints.glob("*.ckpt"))]
    job = os.environ.get("SLURM_JOB_ID")
    # SLURM gives a job that it requeues the same number
    of_job = [run for run in runs if job and _read_status(run).get("slurm_job_id") == job]
    return next(iter(of_job if needs_job else of_job or runs), None)


def find_run(text: str, groups: bool = False) -> RunFolder:
    """Find a run by what the user typed.

    Args:
        text: ``last`` (the newest run), a run folder, a checkpoint in it, or an experiment, which
            stands for its newest run, those of its groups included. Folders may be given as they
            are or from ``lightning_logs`` on: ``mine``, ``mine/version_3``,
            ``mine/seeds_0/seed_1``.
        groups: Whether the folder of a group, ``mine/seeds_0``, stands for the group and not for
            its newest run.

    Raises:
        UserError: If there is no such run; names the nearest.
    """
    for path in (Path(text), ROOT / text):
        # os.path.isfile says no to a name that is too long for a file; Path.is_file (3.11) raises
        run = find_owner(path) if os.path.isfile(path) else RunFolder(path)
        if run is not None and (run.is_run() or (groups and run.is_group())):
            return run
        # An experiment, or a group: its newest run. A folder around lightning_logs is none
        is_inside = os.path.isdir(path) and not ROOT.resolve().is_relative_to(path.resolve())
        runs = list_runs(path) if is_inside else []
        if runs:
            # `mine` means its own runs first, then those of experiments such as `mine/large`
            return next((run for run in runs if find_experiment(run) == path), runs[0])

    runs = list_runs()
    if runs and text == "last":
        return runs[0]
    # Say which runs there are, and which is nearest to what was typed
    experiments = {RunFolder(find_experiment(run)).name for run in runs}
    names = experiments | {run.name for run in runs}
    shown = sorted(name for name in experiments if not name.startswith("sweeps/"))
    listed = f"; the experiments in {ROOT} are {', '.join(shown) or 'none yet'}"
    raise UserError(
        f"{text}: there is no such run{nearest(text.removeprefix(f'{ROOT}/'), names, listed)}"
    )


def find_checkpoint(text: str) -> Path:
    """Return the checkpoint that the user means: a file, or a run, of which it is the best one or
    else the last.
    """
    return Path(text) if os.path.isfile(text) else choose_checkpoint(find_run(text))


def choose_checkpoint(run: RunFolder, which: str | None = None) -> Path:
    """Return a checkpoint of a run.

    Args:
        run: The run.
        which: ``last``, a file, or ``best``, like None: the best one, the last where no metric was
            monitored.

    Raises:
        UserError: If there is no such checkpoint.
    """
    which = which or "best"
    best = read_record(run.metrics).get("best") or {}
    names = {"last": "last.ckpt", "best": best.get("checkpoint", "last.ckpt")}
    # The name alone: the metrics.json of somebody else may say ../../another.ckpt
    path = run.checkpoints / Path(names[which]).name if which in names else Path(which)
    if not os.path.isfile(path):
        raise UserError(
            f"{run.name}: there is no checkpoint {path}; give another one with --ckpt_path"
        )
    return path


def find_experiment(run: RunFolder) -> Path:
    """Return the folder of the experiment that a run belongs to, also for a run in a group."""
    # lightning_logs/mine, also of lightning_logs/mine/seeds_0/seed_1/version_0
    return Path(re.sub(r"/(seeds|folds)_\d+(/(seed|fold)_\d+)?$", "", str(run.path.parent)))
