"""Checks of the parts of a sweep file, each refused in one line with file and key."""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from litlab.errors import UserError
from litlab.sweep.space import Choice, Entry, Range, Scalar, Space
from litlab.util.nearest import nearest

OURS = ("seed_everything", "experiment", "test_after_fit", "ckpt_path", "resume", "config")  # set for each trial


class Reader:
    """Checks parts of a sweep file; what is wrong is a `UserError` with file and key."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raises the `UserError` for a key."""
        raise UserError(f"{self._file}: {key}: {why}")

    def known(self, content: dict[str, Any], keys: tuple[str, ...], at: str) -> None:
        """Refuses keys that there are not, in the block at a path that ends with a dot."""
        for key in content:
            if key not in keys:
                self.refuse(f"{at}{key}", f"there is no such key{nearest(str(key), keys)}")

    def one_of(self, value: Any, names: tuple[str, ...], key: str) -> None:
        """Refuses a word that is none of some names."""
        if value not in names:
            self.refuse(key, f"must be one of {', '.join(names)}, not '{value}'{nearest(str(value), names)}")

    def number(
        self, content: dict[str, Any], key: str, default: Any, least: float = -math.inf, integer: bool = False,
        at: str = "",
    ) -> Any:  # fmt: skip
        """A number, or the default where there is none.

        Args:
            content: The block that it is in.
            key: Its key there.
            default: What is taken for null.
            least: The least that it may be.
            integer: Whether it must be whole.
            at: Path of the block, with a dot at its end.
        """
        value = content.get(key)
        if value is None:
            return default
        if isinstance(value, str):  # YAML 1.1 takes 1e-4 for a word
            try:
                value = float(value)
            except ValueError:
                self.refuse(f"{at}{key}", f"must be a number, not '{value}'.")
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not fits or value < least or (integer and not isinstance(value, int)):
            kind = "a whole number" if integer else "a number"
            self.refuse(f"{at}{key}", f"must be {kind}{f' of at least {least}' if least > -math.inf else ''}: {value}.")
        return value

    def named(self, value: Any, names: tuple[str, ...], key: str) -> dict[str, Any]:
        """A name, or one with arguments, as ``{name: ..., argument: ...}``."""
        settings = {"name": "none" if value is None else value} if not isinstance(value, dict) else dict(value)
        self.one_of(settings.get("name"), names, key)
        return settings

    def base(self, value: Any) -> list[Path]:
        """The config files, from the working directory on where they lie in it."""
        if not value or not all(isinstance(item, str) for item in as_list(value)):
            self.refuse("base", "is missing: list the config files of the experiment, relative to this file.")
        here = Path.cwd().resolve()
        paths = [(self._file.parent / item).resolve() for item in as_list(value)]
        for path, item in zip(paths, as_list(value), strict=True):
            if not path.is_file():
                self.refuse("base", f"{item}: no such file (paths are relative to the sweep file).")
        return [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]

    def free(self, path: Any, key: str) -> None:
        """Refuses a YAML path that is not the sweep file's to set."""
        if str(path).split(".")[0] in OURS:
            self.refuse(key, "is set by the sweep itself, for each trial.")

    def space(self, content: Any) -> Space:
        """The entries of the space."""
        if not isinstance(content, dict) or not content:
            self.refuse("space", "is missing: list YAML paths, each with a range or choices.")
        space: Space = {}
        for path, entry in content.items():
            key = f"space.{path}"
            self.free(path, key)
            if not isinstance(entry, dict) or not ("choices" in entry or {"low", "high"} <= set(entry)):
                self.refuse(key, "must be {low: ..., high: ...} or {choices: [...]}.")
            when = self._when(entry.get("when"), f"{key}.when", space)
            space[path] = self._choice(entry, when, key) if "choices" in entry else self._range(entry, when, key)
        return space

    def _range(self, entry: dict[str, Any], when: dict[str, list[Scalar]], key: str) -> Range:
        self.known(entry, ("low", "high", "step", "log", "when"), f"{key}.")
        low, high = (self.number(entry, name, None, at=f"{key}.") for name in ("low", "high"))
        step = self.number(entry, "step", None, at=f"{key}.")
        log = entry.get("log", False)
        if low is None or high is None:
            self.refuse(key, "must be {low: ..., high: ...} or {choices: [...]}.")
        if low > high:
            self.refuse(key, f"low {low} is above high {high}.")
        if not isinstance(log, bool):
            self.refuse(f"{key}.log", f"must be true or false, not '{log}'.")
        if log and low <= 0:
            self.refuse(key, f"log needs a low above 0, not {low}.")
        if log and step is not None:
            self.refuse(key, "log and step do not go together: keep one.")
        integer = isinstance(low, int) and isinstance(high, int)
        if step is not None and (step <= 0 or (integer and not isinstance(step, int))):
            self.refuse(f"{key}.step", f"must be a {'whole ' if integer else ''}number above 0, not {step}.")
        if step is not None and abs((count := (high - low) / step) - round(count)) > 1e-9:
            self.refuse(key, f"high {high} is not a whole number of steps of {step} above low {low}.")
        if not integer:
            low, high = float(low), float(high)
        return Range(low, high, step, log, when)

    def _choice(self, entry: dict[str, Any], when: dict[str, list[Scalar]], key: str) -> Choice:
        self.known(entry, ("choices", "when"), f"{key}.")
        given = entry["choices"]
        if not isinstance(given, (list, dict)) or not given:
            self.refuse(key, "choices must be a list of values or blocks, or blocks by name.")
        if isinstance(given, dict):
            return Choice({str(name): value for name, value in given.items()}, when)
        choices: dict[Scalar, Any] = {}
        for value in given:
            name = value if isinstance(value, Scalar) else _block_name(value)
            if any(name == other and type(name) is type(other) for other in choices):
                self.refuse(key, f"'{name}' is there twice: give the blocks names (choices: {{name: block}}).")
            choices[name] = value
        if len(choices) < len(given):  # 1, 1.0 and true are one key
            self.refuse(key, f"{given} holds the same value twice.")
        return Choice(choices, when)

    def _when(self, content: Any, key: str, earlier: Space) -> dict[str, list[Scalar]]:
        if content is None:
            return {}
        if not isinstance(content, dict):
            self.refuse(key, "must be {path of an earlier entry: value or list of values}.")
        when: dict[str, list[Scalar]] = {}
        for path, allowed in content.items():
            entry: Entry | None = earlier.get(path)
            if entry is None:
                self.refuse(key, f"'{path}' is not an earlier entry{nearest(str(path), tuple(earlier))}")
            if not isinstance(entry, Choice):
                self.refuse(key, f"'{path}' is a range: a condition needs choices.")
            when[path] = as_list(allowed)
            for value in when[path]:
                if value not in entry.choices:
                    names = tuple(str(name) for name in entry.choices)
                    self.refuse(key, f"'{value}' is not a choice of {path} ({', '.join(names)}).")
        return when


def as_list(value: Any) -> list[Any]:
    """A value that may be one or several."""
    return [] if value is None else value if isinstance(value, list) else [value]


def _block_name(block: Any) -> str:
    """What a block is called that has no name: its class, else what it holds."""
    if isinstance(block, dict) and "class_path" in block:
        return str(block["class_path"]).rsplit(".", 1)[-1]
    return json.dumps(block)
