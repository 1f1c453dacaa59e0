"""Find runs: all of them, or the one that the user names."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs.folder import COMPILED, ROOT, RunFolder, read_json, read_or_note
from litlab.runs.seed_group import SeedGroup, experiment_of
from litlab.util.team import typed
from litlab.util.text import nearest

RUN_HELP = "a run or its folder, an experiment (its newest run), last, best, or a checkpoint"
OWNER = ".run"  # in a folder of checkpoints outside of runs: the folder of the run that they belong to


def all_runs(root: Path = ROOT) -> list[RunFolder]:
    """Return all runs below a folder, the newest first."""
    return newest_first(_walk(root, set()))


def runs_of(folder: Path) -> list[RunFolder]:
    """Return the runs directly in the folder of an experiment, the newest first."""
    return newest_first(run for child in _children(folder) if (run := RunFolder(child)).is_run())


def newest_first(runs: Iterable[RunFolder]) -> list[RunFolder]:
    """Sort runs by the time they were last started, then by their number."""

    def order(run: RunFolder) -> tuple:
        number = run.path.name.removeprefix("version_")
        return run.when(), str(run.path.parent), int(number) if number.isdecimal() else -1

    return sorted(runs, key=order, reverse=True)


def find_run(text: str, root: Path = ROOT) -> RunFolder:
    """Find a run by what the user typed.

    Args:
        text: ``last`` (the newest run), ``best`` (of the newest run's experiment, the run with the best value of the
            metric that it monitors), a run folder, a checkpoint in it, or an experiment, which stands for its newest
            run, one of its seeds included. Folders may be given as they are or from ``lightning_logs`` on: ``mine``,
            ``mine/version_3``, ``mine/seeds_0/seed_1``.
        root: Where the runs are.

    Raises:
        UserError: If there is no such run, or the folder holds several experiments; names the nearest.
    """
    if text in ("last", "best"):
        runs = all_runs(root)
        if not runs:
            raise UserError(f"{text}: there are no runs in {root} yet.")
        return runs[0] if text == "last" else _best(runs)
    for path in (Path(text), root / text):
        if os.path.isfile(path):  # which is not an error for names that no file can have
            owner = owner_of(path)
            if owner is None:
                raise UserError(f"{text} is in no run folder; give a checkpoint of a run, or the run itself.")
            return owner
        if not text or not os.path.isdir(path):
            continue
        if RunFolder(path).is_run():
            return RunFolder(path)
        if path.resolve() == root.resolve() or path.resolve() in root.resolve().parents:
            raise UserError(f"there is no run '{text}': {_experiments(root)}")
        if runs := all_runs(path):
            own = [run for run in runs if experiment_of(run) == path]
            names = sorted({str(experiment_of(run)) for run in runs})
            if own or len(names) == 1:
                return (own or runs)[0]
            raise UserError(f"{text} holds several experiments; give one of {', '.join(names)}.")
    known = [run.path.relative_to(root).as_posix() for run in all_runs(root)]
    names = ["last", *known, *(run.rpartition("/")[0] for run in known)] if known else []
    hint = nearest(relative_name(root, text), names, otherwise=f": {_experiments(root)}")
    raise UserError(f"there is no run '{text}'{hint}")


def find_group(text: str, root: Path = ROOT) -> SeedGroup | None:
    """Return the group of seeds whose folder the user typed, if it is one: ``mine/seeds_0``."""
    groups = (SeedGroup(path) for path in (Path(text), root / text))
    return next((group for group in groups if group.file.is_file()), None)


def relative_name(root: Path, text: str) -> str:
    """Return the name of a run or experiment as it is below the folder of all runs, however it was typed."""
    return text.strip("/").removeprefix(f"{root.as_posix()}/")


def owner_of(path: Path) -> RunFolder | None:
    """Return the run that a file is in, or that the folder of checkpoints around it belongs to, if any."""
    noted = noted_owner(path.absolute().parent)
    if noted is not None and RunFolder(noted).is_run():
        return RunFolder(noted)
    return run_around(path)


def run_around(path: Path) -> RunFolder | None:
    """Return the run that a file is in, if any."""
    return next((RunFolder(folder) for folder in path.absolute().parents if RunFolder(folder).is_run()), None)


def noted_owner(folder: Path) -> Path | None:
    """Return the run that a folder of checkpoints was made for (``checkpoint.dirpath``), if it is noted."""
    try:
        return Path((folder / OWNER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _best(runs: list[RunFolder]) -> RunFolder:
    """Return the best run of the newest run's experiment, seeds included."""
    found: dict[RunFolder, dict[str, Any]] = {}
    problems: list[str] = []
    experiment = experiment_of(runs[0])
    for run in (run for run in runs if experiment_of(run) == experiment):
        best = read_or_note(problems, read_json, run.metrics).get("best") or {}
        if best.get("value") is not None:
            found[run] = best
    for problem in problems:  # the other runs can still be compared
        print(f"warning: {problem}", file=sys.stderr)
    if not found:
        raise UserError(f"best: no run of {experiment} has monitored a metric yet; give a run's name.")
    monitored = next((best["monitor"], best["mode"]) for best in found.values())
    values = {run: best["value"] for run, best in found.items() if (best["monitor"], best["mode"]) == monitored}
    return (max if monitored[1] == "max" else min)(values, key=values.__getitem__)


def _experiments(root: Path) -> str:
    names = {experiment_of(run).relative_to(root).as_posix() for run in all_runs(root)}
    if not names:
        return f"there are no runs in {root} yet."
    return f"the experiments in {root} are {', '.join(sorted(names))}; `{typed('runs')}` lists the runs."


def _walk(folder: Path, seen: set[Path]) -> Iterator[RunFolder]:
    """Yield the runs below a folder; a link that leads back up is not followed again."""
    real = folder.resolve()
    if real in seen:
        return
    seen.add(real)
    for child in _children(folder):
        if RunFolder(child).is_run():
            yield RunFolder(child)
        else:
            yield from _walk(child, seen)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir() and child.name != COMPILED)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:  # one folder that can't be read must not hide the other runs
        print(f"warning: {folder} can't be read: {error.strerror}.", file=sys.stderr)
        return []


def newest_resumable(root, experiment):
    return next((run for run in runs_of(root / experiment) if (run.checkpoints / "last.ckpt").is_file()), None)
