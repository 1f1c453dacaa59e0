"""The parts of a sweep file, each checked; what is wrong is one line with its key."""

import json
import math
import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from litlab.commands.sweep.space import Entry, Scalar, Space
from litlab.errors import UserError
from litlab.util.text import nearest

OURS = ("seed_everything", "experiment", "test_after_fit", "ckpt_path", "resume", "config")  # set for each trial
FORMS = "must be {low: ..., high: ...} or {choices: [...]}."


def refuse(key: str, why: str) -> NoReturn:
    """Raise the `UserError` for a key."""
    raise UserError(f"{key}: {why}")


def check_keys(content: dict[str, Any], keys: Iterable[str], at: str = "") -> None:
    """Refuse unknown keys in the block at a path that ends with a dot."""
    for key in content:
        if key not in keys:
            refuse(f"{at}{key}", f"there is no such key{nearest(str(key), keys)}")


def check_word(value: Any, words: Iterable[str], key: str) -> None:
    """Refuse a word that is none of some words."""
    if value not in words:
        refuse(key, f"must be one of {', '.join(words)}, not '{value}'{nearest(str(value), words)}")


def check_path(path: Any, key: str) -> None:
    """Refuse a YAML path that the sweep sets itself."""
    if str(path).split(".")[0] in OURS:
        refuse(key, "is set by the sweep itself, for each trial; remove it.")


def number(value: Any, key: str, default: Any = None, least: float = -math.inf, whole: bool = False) -> Any:
    """Return a number, or the default for null.

    Args:
        value: What the file says.
        key: Where it says so.
        default: What null stands for.
        least: The least that it may be.
        whole: Whether it must be a whole number.
    """
    if value is None:
        return default
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < least or (whole and not isinstance(value, int)):
        bound = f" of at least {least}" if least > -math.inf else ""
        refuse(key, f"must be a {'whole ' if whole else ''}number{bound}, not {value!r}.")
    return value


def named(value: Any, names: Iterable[str], key: str) -> dict[str, Any]:
    """Return a name, or one with arguments, as ``{name: ..., argument: ...}``."""
    settings = dict(value) if isinstance(value, dict) else {"name": "none" if value is None else value}
    check_word(settings.get("name"), names, key)
    return settings


def space(content: Any) -> Space:
    """Return the entries of the space."""
    if not isinstance(content, dict) or not content:
        refuse("space", "is missing; list YAML paths, each with a range or choices.")
    found: Space = {}
    for path, entry in content.items():
        key = f"space.{path}"
        check_path(path, key)
        if not isinstance(entry, dict) or not ("choices" in entry or {"low", "high"} <= set(entry)):
            refuse(key, FORMS)
        when = _when(entry.get("when"), f"{key}.when", found)
        if "choices" in entry:
            choices = _choices(entry, key)
            found[path] = Entry(CategoricalDistribution(list(choices)), choices, when)
        else:
            found[path] = Entry(_range(entry, key), when=when)
    return found


def _range(entry: dict[str, Any], key: str) -> FloatDistribution | IntDistribution:
    check_keys(entry, ("low", "high", "step", "log", "when"), f"{key}.")
    low, high, step = (number(entry.get(name), f"{key}.{name}") for name in ("low", "high", "step"))
    log = entry.get("log", False)
    if low is None or high is None:
        refuse(key, FORMS)
    if not isinstance(log, bool):
        refuse(f"{key}.log", f"must be true or false, not '{log}'.")
    if log and step is not None:
        refuse(key, "log and step do not go together; remove one.")
    whole = isinstance(low, int) and isinstance(high, int)
    if whole and step is not None and not isinstance(step, int):
        refuse(f"{key}.step", f"must be a whole number, as low and high are, not {step}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps that do not end at high
            found = IntDistribution(low, high, log, step or 1) if whole else FloatDistribution(low, high, log, step)
    except ValueError as error:
        refuse(key, str(error).replace("`", ""))
    if not math.isclose(found.high, high, rel_tol=1e-9):
        refuse(key, f"high {high} is not a whole number of steps of {step} above low {low}.")
    return found


def _choices(entry: dict[str, Any], key: str) -> dict[Scalar, Any]:
    check_keys(entry, ("choices", "when"), f"{key}.")
    given = entry["choices"]
    if not isinstance(given, (list, dict)) or not given:
        refuse(key, "choices must be a list of values or blocks, or blocks by name.")
    if isinstance(given, dict):
        return {str(name): value for name, value in given.items()}
    choices: dict[Scalar, Any] = {}
    for value in given:
        name = value if isinstance(value, Scalar) else _block_name(value)
        if name in choices:
            refuse(key, f"'{name}' equals an earlier choice; remove one, or name them (choices: {{name: ...}}).")
        choices[name] = value
    return choices


def _when(content: Any, key: str, earlier: Space) -> dict[str, list[Scalar]]:
    if content is not None and not isinstance(content, dict):
        refuse(key, "must be {path of an earlier entry: value or list of values}.")
    when = {path: as_list(allowed) for path, allowed in (content or {}).items()}
    for path, allowed in when.items():
        if path not in earlier:
            refuse(key, f"'{path}' is not an earlier entry{nearest(str(path), tuple(earlier))}")
        choices = earlier[path].choices
        if not choices:
            refuse(key, f"'{path}' is a range; a condition needs choices.")
        for value in allowed:
            if value not in choices:
                refuse(key, f"'{value}' is not a choice of {path} ({', '.join(map(str, choices))}).")
    return when


def as_list(value: Any) -> list[Any]:
    """Return a value that may be one or several as a list."""
    return [] if value is None else value if isinstance(value, list) else [value]


def _block_name(block: Any) -> str:
    """Name a block that has no name: by its class, else by its content."""
    if isinstance(block, dict) and "class_path" in block:
        return str(block["class_path"]).rsplit(".", 1)[-1]
    return json.dumps(block)
