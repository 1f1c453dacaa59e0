"""The sweep file: the settings that it searches, and the rest, checked before the first trial."""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import CmaEsSampler, RandomSampler, TPESampler

from litlab.cli.argv import find_bases, read_command_line, resolve_bases
from litlab.errors import UserError
from litlab.runs.folder import ROOT
from litlab.util.metrics import metric_direction
from litlab.util.text import nearest
from litlab.util.yaml import read_mapping, read_text

Scalar = bool | int | float | str | None
Point = dict[str, Scalar]  # YAML path -> value; a choice that is a block goes by its name


@dataclass(frozen=True)
class Entry:
    """What is searched for one setting."""

    distribution: FloatDistribution | IntDistribution | CategoricalDistribution  # its values
    choices: dict[Scalar, Any]  # what the choices stand for in the config; {} for a range

    def corners(self) -> list[Scalar]:
        space: Any = self.distribution
        return list(self.choices) or [space.low, space.high]

    def grid(self) -> list[Scalar]:
        space: Any = self.distribution
        if self.choices:
            return list(self.choices)
        steps = round((space.high - space.low) / space.step)
        return [space.low + number * space.step for number in range(steps + 1)]

    def setting(self, value: Scalar) -> Any:
        """Return what a value stands for: 0.15, where steps add up to 0.15000000000000002."""
        if self.choices:
            return self.choices[value]
        return float(f"{value:.12g}") if isinstance(value, float) else value


Space = dict[str, Entry]


def list_points(space: Space, list_values: Callable[[Entry], list[Scalar]]) -> list[Point]:
    return [
        dict(zip(space, values, strict=True))
        for values in product(*map(list_values, space.values()))
    ]


def list_corners(space: Space) -> list[Point]:
    """Return points that hold both ends of each range and every choice, with the blocks that they
    lie in.
    """
    corners: list[Point] = []
    for path in space:
        around = {
            other: entry for other, entry in space.items() if f"{path}.".startswith(f"{other}.")
        }
        corners += list_points(around, Entry.corners)
    return corners


def make_overlay(space: Space, point: Point) -> dict[str, Any]:
    """Return the config overlay of a point: YAML path -> setting.

    A value inside of a block that another entry has chosen is put into the block.
    """
    settings: dict[str, Any] = {}
    for path in sorted(space.keys() & point.keys(), key=lambda path: path.count(".")):
        setting = space[path].setting(point[path])
        block = next((other for other in settings if path.startswith(f"{other}.")), None)
        if block is None:
            settings[path] = setting
        else:
            keys = path.removeprefix(f"{block}.").split(".")
            settings[block] = _put(settings[block], keys, setting)
    return settings


def _put(block: Any, keys: list[str], setting: Any) -> Any:
    """Return a block with a setting in it; paths leave ``init_args`` out, which a config needs."""
    if not keys:
        return setting
    if isinstance(block, str):  # a class by its name alone
        block = {"class_path": block}
    block = dict(block or {})
    if "class_path" in block and keys[0] not in ("class_path", "init_args"):
        keys = ["init_args", *keys]
    return {**block, keys[0]: _put(block.get(keys[0]), keys[1:], setting)}


SAMPLERS = {
    "tpe": TPESampler,
    "random": RandomSampler,
    "grid": RandomSampler,  # never asked: the points are queued
    "cmaes": CmaEsSampler,
}
PRUNERS = {"median": MedianPruner, "hyperband": HyperbandPruner, "none": NopPruner}
DIRECTIONS = {"min": "minimize", "max": "maximize"}
LEAST = {"trials": 1, "hours": 0.0, "seeds": 1}  # the numbers
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
        _refuse(key, f"'{settings.get('name')}' is none of {', '.join(classes)}; choose one")
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
            _refuse(key, f"there is no such key{nearest(key, KEYS, otherwise)}")
    name = str(content.get("name", file.stem))
    if not re.fullmatch(r"[\w-][\w.-]{0,99}", name):
        _refuse("name", "it becomes a folder; give up to 100 letters, digits, '.', '-' and '_'")

    # Goals
    metric, direction = content.get("metric"), content.get("direction")
    if not isinstance(metric, str):
        _refuse("metric", "it is missing; name what fit logs, such as val/acc")
    known = DIRECTIONS.get(metric_direction(metric) or "", direction)
    if known not in DIRECTIONS.values():
        _refuse("direction", f"it is not known which {metric} is better; set minimize or maximize")
    if direction not in (None, known):
        _refuse(
            "direction",
            f"{direction} gives the worst {metric}; set {known}, or leave direction out",
        )
    for key, least in LEAST.items():
        value = content.get(key)
        if value is not None and (type(value) not in (int, type(least)) or value < least):
            _refuse(key, f"{value!r} is not valid; give a number of at least {least}")

    # Sampler and pruner
    sampler = _named(content.get("sampler", "tpe"))
    pruner = _named(content.get("pruner", "median"))
    build_part(SAMPLERS, sampler, "sampler")
    build_part(PRUNERS, pruner, "pruner")

    # What is set
    space = _read_space(content.get("space"))
    settings = content.get("settings") or {}
    if not isinstance(settings, dict):
        _refuse("settings", "it must be YAML paths with their values")
    for path in [*space, *settings]:
        if str(path).split(".")[0] in OURS:
            _refuse(path, "the sweep sets it for each trial; remove it")
    base = resolve_bases(content.get("base", "base.yaml"), file)

    # How long
    trials = content["trials"]
    if sampler["name"] == "grid":
        points = len(_list_grid(space))
        trials = min(points, trials or points)
    elif trials is None and content["hours"] is None:
        _refuse("trials", "it is missing; give a number of trials, hours, or both")

    files = [read_text(each) for path in base for each in (*find_bases(path), path)]
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
        known,
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


def _read_space(content: Any) -> Space:
    if not isinstance(content, dict) or not content:
        _refuse("space", "it is missing; list YAML paths, each with a range or choices")
    space: Space = {}
    for path, entry in content.items():
        key = f"space.{path}"
        keys = entry.keys() if isinstance(entry, dict) else set()
        if keys != {"choices"} and keys - {"step", "log"} != {"low", "high"}:
            _refuse(key, "give low and high (and step or log), or choices")
        choices = _read_choices(entry["choices"], key) if "choices" in entry else {}
        distribution = (
            CategoricalDistribution(list(choices)) if choices else _read_range(entry, key)
        )
        space[path] = Entry(distribution, choices)
    return space


def _read_range(entry: dict[str, Any], key: str) -> FloatDistribution | IntDistribution:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # steps that do not end at high
            is_whole = all(
                isinstance(number, int) for name, number in entry.items() if name != "log"
            )
            return (IntDistribution if is_whole else FloatDistribution)(**entry)
    except (TypeError, ValueError, UserWarning) as error:
        raise UserError(f"{key}: {error}") from error


def _read_choices(content: Any, key: str) -> dict[Scalar, Any]:
    if isinstance(content, dict) and content:
        return {str(name): value for name, value in content.items()}
    if not isinstance(content, list) or not content:
        _refuse(key, "choices must be a list of values or blocks, or blocks by name")
    choices: dict[Scalar, Any] = {}
    for value in content:
        name = value if isinstance(value, Scalar) else json.dumps(value)
        if name in choices:
            _refuse(
                key,
                f"'{name}' equals an earlier choice; remove one, or name them (choices: "
                f"{{NAME: ...}})",
            )
        choices[name] = value
    return choices


def _list_grid(space: Space) -> list[Any]:
    for path, entry in space.items():
        space_of: Any = entry.distribution
        if not entry.choices and (space_of.step is None or space_of.log):
            _refuse(f"space.{path}", "a grid needs a step without log, or choices")
    return list_points(space, Entry.grid)


def _named(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"name": value}


def _flags_of(settings: dict[str, Any]) -> list[str]:
    return [
        f"--{path}={value if isinstance(value, str) else json.dumps(value)}"
        for path, value in settings.items()
    ]


def _refuse(key: str, problem: str) -> NoReturn:
    raise UserError(f"{key}: {problem}")
