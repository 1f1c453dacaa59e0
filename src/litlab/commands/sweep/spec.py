"""The sweep file: what it says, checked, and a fingerprint of it."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution

from litlab.cli.argv import find_bases, resolve_bases
from litlab.commands.sweep import reading as read
from litlab.commands.sweep.reading import refuse
from litlab.commands.sweep.samplers import PRUNERS, SAMPLERS, make_pruner, make_sampler
from litlab.commands.sweep.space import Space, grid
from litlab.errors import UserError
from litlab.runs.folder import ROOT
from litlab.util.metrics import metric_direction
from litlab.util.yaml import read_mapping

KEYS = (
    "name", "base", "settings", "metric", "direction", "trials", "hours", "sampler", "pruner", "seeds", "spread",
    "stall_minutes", "space",
)  # fmt: skip
DIRECTIONS = ("minimize", "maximize")
BETTER = {"minimize": "lower", "maximize": "higher"}
BY_MODE = {"min": "minimize", "max": "maximize"}


@dataclass(frozen=True)
class SweepSpec:
    """A sweep, as its file describes it.

    Args:
        file: The sweep file.
        name: Name of the sweep and of its study.
        folder: Where everything about it is kept.
        base: Config files and overlays of the experiment.
        settings: Further values for all trials, YAML path -> value.
        metrics: What is optimised.
        directions: ``minimize`` or ``maximize``, for each metric.
        trials: Number of trials, of a grid at most its points; None for no limit but the time.
        hours: How long one command starts new trials; None for no limit.
        sampler: ``name`` and arguments.
        pruner: ``name`` and arguments.
        seeds: Fits per trial.
        spread: By how many standard deviations over the seeds the mean is made worse.
        stall_minutes: After how long without a report a fit is killed.
        space: What is searched, YAML path -> entry.
        arguments: Further arguments of every fit.
    """

    file: Path
    name: str
    folder: Path
    base: list[Path]
    settings: dict[str, Any]
    metrics: list[str]
    directions: list[str]
    trials: int | None
    hours: float | None
    sampler: dict[str, Any]
    pruner: dict[str, Any]
    seeds: int
    spread: float
    stall_minutes: float
    space: Space
    arguments: list[str] = field(default_factory=list)

    def fingerprint(self) -> dict[str, str]:
        """Return what makes values of trials comparable: key of the sweep file -> checksum of what it says.

        Trials of another fingerprint don't count here. It is kept with the study, and may have been made of secrets.

        Raises:
            UserError: If a file of the base can't be read.
        """
        files = [file for path in self.base for file in (*find_bases(path), path)]
        content = {
            "metric": self.metrics,
            "direction": self.directions,
            "base": [[path.name, read_mapping(path, example="metric: val/acc")] for path in files],
            "settings": self.settings,
            "seeds": self.seeds,
            "spread": self.spread,
            "space": {path: vars(entry) for path, entry in self.space.items()},
            "fit arguments": self.arguments,
        }
        return {key: _checksum(value) for key, value in content.items()}


def _checksum(value: Any) -> str:
    try:
        text = json.dumps(value, sort_keys=True, default=str)
    except TypeError:  # choices of several types, such as 0.1 and null, have no order
        text = json.dumps(value, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_spec(
    file: Path, trials: int | None = None, hours: float | None = None, arguments: list[str] | None = None
) -> SweepSpec:
    """Read a sweep file.

    Args:
        file: The file.
        trials: Takes the place of the file's number.
        hours: Takes the place of the file's number.
        arguments: Further arguments of every fit.

    Raises:
        UserError: If it can't be read or something in it is wrong: one line with file and key.
    """
    content = read_mapping(file, example="metric: val/acc")
    content |= {key: value for key, value in (("trials", trials), ("hours", hours)) if value is not None}
    try:
        return _spec(file, content, arguments or [])
    except UserError as error:
        raise UserError(f"{file}: {str(error).removeprefix(f'{file}: ')}") from error


def _spec(file: Path, content: dict[str, Any], arguments: list[str]) -> SweepSpec:
    read.check_keys(content, KEYS)
    name = content.get("name", file.stem)
    if not isinstance(name, str) or not name or set(name) & set("/\\ ") or name.startswith("."):
        refuse("name", f"'{name}' is not a valid folder name.")
    metrics = read.as_list(content.get("metric"))
    if not metrics or not all(isinstance(metric, str) for metric in metrics):
        refuse("metric", "is missing; name what fit logs, such as val/acc, or a list of several.")
    modes = [metric_direction(metric) for metric in metrics]
    known = [None if mode is None else BY_MODE[mode] for mode in modes]
    directions = read.as_list(content.get("direction", known))
    for direction in directions:
        read.check_word(direction, DIRECTIONS, "direction")
    if len(directions) != len(metrics):
        refuse("direction", f"give one for each metric: {len(metrics)}, not {len(directions)}.")
    for metric, right, direction in zip(metrics, known, directions, strict=True):
        if right not in (None, direction):
            refuse("direction", f"{metric} is better when {BETTER[right]}; set {right}, or leave direction out.")
    sampler = read.named(content.get("sampler", "tpe"), SAMPLERS, "sampler")
    pruner = read.named(content.get("pruner", "median" if len(metrics) == 1 else "none"), PRUNERS, "pruner")
    if len(metrics) > 1 and pruner["name"] != "none":
        refuse("pruner", f"{pruner['name']} compares one metric, not {len(metrics)}; set it to none.")
    space = read.space(content.get("space"))
    settings = content.get("settings") or {}
    if not isinstance(settings, dict):
        refuse("settings", "must be YAML paths with their values.")
    for path in settings:
        read.check_path(path, f"settings.{path}")
        if path in space:
            refuse(f"settings.{path}", "is searched in space too; remove one.")
    if content.get("base") is None:
        refuse("base", "is missing; list the config files of the experiment, relative to this file.")
    spec = SweepSpec(
        file=file,
        name=name,
        folder=ROOT / "sweeps" / name,
        base=resolve_bases(content["base"], file),
        settings=settings,
        metrics=metrics,
        directions=directions,
        trials=read.number(content.get("trials"), "trials", least=1, whole=True),
        hours=read.number(content.get("hours"), "hours", least=0.0),
        sampler=sampler,
        pruner=pruner,
        seeds=read.number(content.get("seeds"), "seeds", 1, least=1, whole=True),
        spread=read.number(content.get("spread"), "spread", 1.0, least=0.0),
        stall_minutes=read.number(content.get("stall_minutes"), "stall_minutes", 30.0, least=0.01),
        space=space,
        arguments=arguments,
    )
    make_sampler(sampler)  # checks the arguments
    make_pruner(pruner)
    if sampler["name"] == "grid":
        points = _grid_points(space)
        return dataclasses.replace(spec, trials=min(points, spec.trials or points))
    if spec.trials is None and spec.hours is None:
        refuse("trials", "is missing; give a number of trials, hours, or both.")
    return spec


def _grid_points(space: Space) -> int:
    for path, entry in space.items():
        found = entry.distribution
        if isinstance(found, FloatDistribution) and found.step is None and not found.log:
            refuse(f"space.{path}", "a grid needs a step, or choices.")
        if not isinstance(found, CategoricalDistribution) and found.log:
            refuse(f"space.{path}", "a grid has even steps; list the values as choices in place of log.")
    return sum(1 for _ in grid(space))
