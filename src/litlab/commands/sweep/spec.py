"""The sweep file: the settings that it searches, and the rest, checked before the first trial."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.pruners import HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import CmaEsSampler, RandomSampler, TPESampler

from litlab.cli.argv import find_bases, read_command_line, resolve_bases
from litlab.commands.sweep.space import (
    Space,
    list_corners,
    list_grid,
    make_overlay,
    read_space,
    refuse,
)
from litlab.errors import UserError
from litlab.runs.folder import ROOT
from litlab.util.metrics import metric_direction
from litlab.util.text import nearest
from litlab.util.yaml import read_mapping, read_text

SAMPLERS = {
    "tpe": TPESampler,
    "random": RandomSampler,
    "grid": RandomSampler,  # never asked: the points are queued
    "cmaes": CmaEsSampler,
}
PRUNERS = {"median": MedianPruner, "hyperband": HyperbandPruner, "none": NopPruner}
DIRECTIONS = {"min": "minimize", "max": "maximize"}
LEAST = {"trials": 1, "hours": 0.01, "seeds": 1}  # the numbers
# What the trials of a study share
COMPARABLE = ("metric", "direction", "settings", "seeds", "space")
KEYS = ("name", "base", "sampler", "pruner", "trials", "hours", *COMPARABLE)
# Set for each trial
OURS = ("seed_everything", "experiment", "test_after_fit", "ckpt_path", "resume", "config")


@dataclass(frozen=True)
class Spec:
    """A sweep, as its file describes it."""

    file: Path  # the sweep file
    name: str  # name of the sweep and of its study
    base: list[Path]  # config files of the experiment
    settings: dict[str, Any]  # further values for all trials, YAML path -> value
    metric: str  # what is optimised
    direction: Any  # minimize or maximize
    trials: int | None  # number of trials; None for no limit but the time
    hours: float | None  # how long one command starts new trials; None for no limit
    sampler: dict[str, Any]  # name and arguments
    pruner: dict[str, Any]  # name and arguments
    seeds: int  # fits per trial
    space: Space  # what is searched
    arguments: list[str]  # further arguments of every fit
    fingerprint: dict[str, str]  # checksums of what makes trials comparable, by key

    @property
    def folder(self) -> Path:
        return ROOT / "sweeps" / self.name

    def flags(self) -> list[str]:
        return [*(f"--config={path}" for path in self.base), *_flags_of(self.settings)]


def read_spec(
    file: Path,
    trials: int | None = None,
    hours: float | None = None,
    arguments: list[str] | None = None,
) -> Spec:
    """Read a sweep file; trials and hours stand in place of its own, and arguments go to every
    fit.
    """
    content = read_mapping(file, example="metric: val/acc")
    content["trials"] = trials or content.get("trials")
    content["hours"] = hours or content.get("hours")
    try:
        return _read(file, content, arguments or [])
    except UserError as error:
        raise UserError(f"{file}: {str(error).removeprefix(f'{file}: ')}") from error


def build_part(
    classes: Mapping[str, type], settings: dict[str, Any], key: str, number: int = 0
) -> Any:
    """Build a sampler or pruner. The number is added to the seed, or all workers would try the same
    values.
    """
    if settings.get("name") not in classes:
        refuse(
            key, f"'{settings.get('name')}' is not one of {', '.join(classes)}; choose one of them"
        )
    arguments = {name: value for name, value in settings.items() if name != "name"}
    if "seed" in arguments:
        arguments["seed"] += number
    if settings["name"] == "tpe":
        # Stay away from what other workers are trying
        arguments = {"constant_liar": True, **arguments}
    try:
        return classes[settings["name"]](**arguments)
    except (TypeError, ValueError) as error:
        raise UserError(f"{key}: {error}; correct it") from error


def check_space(spec: Spec) -> None:
    """Parse the experiment's config with all corners of the space."""
    from litlab.cli.classes import import_all_classes
    from litlab.cli.config import Command

    import_all_classes()
    parser: Any = Command(["fit", *spec.flags()[: len(spec.base)]]).parser
    for point in [{}, *list_corners(spec.space)]:
        overlay = _flags_of(make_overlay(spec.space, point))
        parser.argv = read_command_line(["fit", *spec.flags(), *spec.arguments, *overlay]).flags
        try:
            parser.parse_args(parser.argv)
        except UserError as error:
            key = "space" if point else "settings"
            raise UserError(f"{spec.file}: {key}: {str(error).removeprefix('--')}") from None


def _read(file: Path, content: dict[str, Any], arguments: list[str]) -> Spec:
    # Names
    for key in content:
        if key not in KEYS:
            otherwise = "; name the experiment's file in base (docs/sweeps.md)"
            refuse(key, f"there is no such key{nearest(key, KEYS, otherwise)}")
    name = str(content.get("name", file.stem))
    if not re.fullmatch(r"[\w-][\w.-]{0,99}", name):
        refuse("name", "it names a folder; use up to 100 letters, digits, '.', '-' and '_'")

    # Goals
    metric, direction = content.get("metric"), content.get("direction")
    if not isinstance(metric, str):
        refuse("metric", "it is missing; name what fit logs, such as val/acc")
    resolved = DIRECTIONS.get(metric_direction(metric) or "", direction)
    if resolved not in DIRECTIONS.values():
        refuse(
            "direction",
            f"it is not known whether a higher or lower {metric} is better; set minimize or "
            "maximize",
        )
    if direction not in (None, resolved):
        refuse(
            "direction",
            f"{direction} would find the worst {metric}; set {resolved}, or leave direction out",
        )
    for key, least in LEAST.items():
        value = content.get(key)
        if value is not None and (type(value) not in (int, type(least)) or value < least):
            refuse(key, f"{value!r} is not valid; give a number of at least {least}")

    # Sampler and pruner
    sampler = _named(content.get("sampler", "tpe"))
    pruner = _named(content.get("pruner", "median"))
    build_part(SAMPLERS, sampler, "sampler")
    build_part(PRUNERS, pruner, "pruner")

    # What is set
    space = read_space(content.get("space"))
    settings = content.get("settings") or {}
    if not isinstance(settings, dict):
        refuse("settings", "it must map flags to values; write them as model.width: 32")
    for path in [*space, *settings]:
        if str(path).split(".")[0] in OURS:
            refuse(path, "the sweep sets it for each trial; remove it")
    base = resolve_bases(content.get("base", "base.yaml"), file)

    # How long
    trials = content["trials"]
    if sampler["name"] == "grid":
        points = len(list_grid(space))
        trials = min(points, trials or points)
    elif trials is None and content["hours"] is None:
        refuse("trials", "it is missing; give a number of trials, hours, or both")

    files = [read_text(config) for path in base for config in (*find_bases(path), path)]
    compared = {key: content.get(key) for key in COMPARABLE} | {
        "base": files,
        "arguments after --": arguments,
    }
    return Spec(
        file,
        name,
        base,
        settings,
        metric,
        resolved,
        trials,
        content["hours"],
        sampler,
        pruner,
        content.get("seeds") or 1,
        space,
        arguments,
        {
            key: hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()
            for key, value in compared.items()
        },
    )


def _named(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"name": value}


def _flags_of(settings: dict[str, Any]) -> list[str]:
    return [
        f"--{path}={value if isinstance(value, str) else json.dumps(value)}"
        for path, value in settings.items()
    ]
