"""Groups of runs that differ in nothing but their seed: ``fit --seeds 0,1,2``."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litlab.runs import lock
from litlab.runs.folder import RunFolder, read_json, read_or_note
from litlab.util.spread import spreads

FILE = "seeds.json"


@dataclass(frozen=True)
class SeedGroup:
    """``lightning_logs/<experiment>/seeds_N/``: a folder for each seed, ``seed_S/``, and a file.

    Args:
        path: The folder. It need not exist yet.
    """

    path: Path

    @property
    def name(self) -> str:
        """The name of the group in tables: ``mine/seeds_0``."""
        return RunFolder(self.path).name

    @property
    def file(self) -> Path:
        """What the group is (docs/seeds.md)."""
        return self.path / FILE

    def content(self) -> dict[str, Any]:
        """Return what the file says.

        Raises:
            UserError: If it can't be read, or is damaged.
        """
        return read_json(self.file)

    def runs(self) -> dict[int, RunFolder]:
        """Return the run that counts for each seed, for seeds that were started.

        Raises:
            UserError: If the file can't be read, or is damaged.
        """
        named = self.content().get("runs") or {}
        found = {int(seed): RunFolder(self.path / run) for seed, run in named.items() if seed.isdecimal()}
        return {seed: run for seed, run in found.items() if run.is_run()}

    def is_running(self) -> bool:
        """Return whether a command works on it."""
        return lock.is_held_elsewhere(self.path)


def group_of(run: RunFolder) -> SeedGroup | None:
    """Return the group that a run belongs to, if any."""
    seed = run.path.absolute().parent
    group = SeedGroup(run.path.parent.parent)
    return group if seed.name.startswith("seed_") and group.file.is_file() else None


def experiment_of(run: RunFolder) -> Path:
    """Return the folder of the experiment that a run belongs to, also for the run of a seed."""
    group = group_of(run)
    return run.path.parent if group is None else group.path.parent


def without_seed(experiment: str) -> str:
    """Return the name of an experiment as the config has it, given the one that the fit of a seed has."""
    return re.sub(r"/seeds_\d+/seed_\d+$", "", experiment)


def how_to_continue(run: RunFolder) -> str:
    """Return which command continues all seeds of the group that a run belongs to; empty if that command runs now."""
    group = group_of(run)
    command = None if group is None else read_or_note([], group.content).get("command")
    if group is None or command is None or group.is_running():
        return ""
    return f"{run.name} is one seed of {group.name}. All of them are continued by: {shlex.join(command)}"


def group_row(group: SeedGroup, rows: dict[int, dict[str, Any]], root: Path) -> dict[str, Any]:
    """Describe a group as one run: metrics are means over the seeds that are finished, seconds a sum.

    Args:
        group: The group.
        rows: Its runs by seed, each as `run_table.describe` returns it.
        root: Where the runs are.
    """
    problems = [problem for row in rows.values() for problem in row["problems"]]
    content = read_or_note(problems, group.content)
    asked = content.get("seeds") or []
    finished = {seed: row for seed, row in rows.items() if row["status"] == "finished"}
    found = spreads(finished.values())
    means = {name: spread.mean for name, spread in found.items()}
    best = next((dict(row["best"]) for row in finished.values() if row["best"]), None)
    if best is not None:
        best = {"monitor": best["monitor"], "mode": best["mode"], "value": means.get(best["monitor"])}
    reasons = {seed: row["reason"] for seed, row in rows.items() if row["reason"]}
    commits = {row["commit"] for row in rows.values()}
    path = group.path
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else group.name
    return {
        "run": name,
        "path": str(path),
        "experiment": name.rpartition("/")[0],
        "status": _status(group, asked, {row["status"].rstrip("?") for row in rows.values()}, len(finished)),
        "reason": "; ".join(f"seed {seed}: {reason}" for seed, reason in reasons.items()) or None,
        "started": max((row["started"] for row in rows.values()), default=RunFolder(path).when().isoformat()),
        "ended": max((row["ended"] for row in rows.values() if row["ended"]), default=None),
        "seconds": _over(sum, rows, "seconds"),
        "best": best,
        **{part: _means_of(part, finished, means) for part in ("val", "test")},
        **{name: _over(max, finished, name) for name in ("epochs", "steps")},
        "peak_memory_gib": _over(max, rows, "peak_memory_gib"),
        "generated_data": any(row["generated_data"] for row in rows.values()),
        "commit": commits.pop() if len(commits) == 1 else None,
        "dirty": any(row["dirty"] for row in rows.values()),
        "command": content.get("command"),
        "seeds": {
            "asked": asked,
            "finished": sorted(finished),
            "deviation": {name: spread.deviation for name, spread in found.items()},
            "runs": {seed: row["run"] for seed, row in rows.items()},
        },
        "problems": problems,
    }


def _status(group: SeedGroup, asked: list[int], statuses: set[str], finished: int) -> str:
    if "running" in statuses or group.is_running():
        return "running"
    if asked and finished == len(asked):
        return "finished"
    return next((status for status in ("failed", "killed") if status in statuses), "interrupted")


def _means_of(part: str, rows: dict[int, dict[str, Any]], means: dict[str, float]) -> dict[str, float]:
    """Return the means of the metrics that runs have in a part of their metrics."""
    names = dict.fromkeys(name for row in rows.values() for name in row[part] or {})
    return {name: means[name] for name in names if name in means}


def _over(reduce: Callable[[list[Any]], Any], rows: dict[int, dict[str, Any]], name: str) -> Any:
    values = [row[name] for row in rows.values() if row[name] is not None]
    return reduce(values) if values else None
