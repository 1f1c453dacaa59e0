"""The sweep file: read, checked, and told apart from another one."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litlab.runs.folder import ROOT
from litlab.sweep.reading import Reader, as_list
from litlab.sweep.space import Range, Space
from litlab.util.yaml_files import read_mapping

KEYS = (
    "name", "base", "settings", "metric", "direction", "trials", "hours", "sampler", "pruner", "seeds", "spread",
    "stall_minutes", "space",
)  # fmt: skip
DIRECTIONS = ("minimize", "maximize")
SAMPLERS = ("tpe", "random", "grid", "cmaes", "nsga2")
PRUNERS = ("median", "hyperband", "none")


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
        trials: Number of trials; None for no limit but the time.
        hours: How long one command starts new trials; None for no limit.
        sampler: ``name`` and arguments.
        pruner: ``name`` and arguments.
        seeds: Fits per trial.
        spread: By how many standard deviations over the seeds the mean is made worse.
        stall_minutes: After how long without a sign of life a fit is killed.
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
        """What makes values of trials comparable: key of the sweep file -> checksum of what it says.

        Trials of another fingerprint don't count here. It is kept with the study, and may have been made of secrets.

        Raises:
            UserError: If a file of the base can't be read.
        """
        space = {path: [type(entry).__name__, vars(entry)] for path, entry in self.space.items()}
        content = {
            "metric": self.metrics,
            "direction": self.directions,
            "base": [[path.name, read_mapping(path, example="metric: val/acc")] for path in self.base],
            "settings": self.settings,
            "seeds": self.seeds,
            "spread": self.spread,
            "space": space,
            "fit arguments": self.arguments,
        }
        texts = {key: json.dumps(value, sort_keys=True, default=str) for key, value in content.items()}
        return {key: hashlib.sha256(text.encode()).hexdigest()[:16] for key, text in texts.items()}


def read_spec(
    file: Path, trials: int | None = None, hours: float | None = None, arguments: list[str] | None = None
) -> SweepSpec:
    """Reads a sweep file.

    Args:
        file: The file.
        trials: Takes the place of the file's number.
        hours: Takes the place of the file's number.
        arguments: Further arguments of every fit.

    Raises:
        UserError: If it can't be read or something in it is wrong: one line with file and key.
    """
    content = read_mapping(file, example="metric: val/acc")
    reader = Reader(file)
    reader.known(content, KEYS, "")
    name = content.get("name", file.stem)
    if not isinstance(name, str) or not name or set(name) & set("/\\ ") or name.startswith("."):
        reader.refuse("name", f"'{name}' is not a valid folder name.")
    metrics = as_list(content.get("metric"))
    if not metrics or not all(isinstance(metric, str) for metric in metrics):
        reader.refuse("metric", "is missing: name what fit logs, such as val/acc, or a list of several.")
    directions = as_list(content.get("direction"))
    for direction in directions:
        reader.one_of(direction, DIRECTIONS, "direction")
    if len(directions) != len(metrics):
        reader.refuse("direction", f"give one for each metric: {len(metrics)}, not {len(directions)}.")
    space = reader.space(content.get("space"))
    sampler = reader.named(content.get("sampler", "tpe"), SAMPLERS, "sampler")
    pruner = reader.named(content.get("pruner", "median" if len(metrics) == 1 else "none"), PRUNERS, "pruner")
    if len(metrics) > 1 and pruner["name"] != "none":
        reader.refuse("pruner", f"{pruner['name']} compares one metric, not {len(metrics)}: set it to none.")
    if sampler["name"] == "grid":
        for path, entry in space.items():
            if isinstance(entry, Range) and entry.step is None and not entry.is_integer:
                reader.refuse(f"space.{path}", "a grid needs a step, or choices.")
            if isinstance(entry, Range) and entry.log:
                reader.refuse(f"space.{path}", "a grid has even steps: list the values as choices in place of log.")
    settings = content.get("settings") or {}
    if not isinstance(settings, dict):
        reader.refuse("settings", "must be YAML paths with their values.")
    for path in settings:
        reader.free(path, f"settings.{path}")
        if path in space:
            reader.refuse(f"settings.{path}", "is searched in space too: keep one.")
    trials = trials or reader.number(content, "trials", None, least=1, integer=True)
    hours = hours or reader.number(content, "hours", None, least=0.0)
    if trials is None and hours is None and sampler["name"] != "grid":
        reader.refuse("trials", "is missing: give a number of trials, hours, or both.")
    return SweepSpec(
        file=file,
        name=name,
        folder=ROOT / "sweeps" / name,
        base=reader.base(content.get("base")),
        settings=settings,
        metrics=metrics,
        directions=directions,
        trials=trials,
        hours=hours,
        sampler=sampler,
        pruner=pruner,
        seeds=reader.number(content, "seeds", 1, least=1, integer=True),
        spread=reader.number(content, "spread", 1.0, least=0.0),
        stall_minutes=reader.number(content, "stall_minutes", 30.0, least=0.01),
        space=space,
        arguments=arguments or [],
    )
