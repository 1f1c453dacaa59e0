"""Result files: JSON anywhere below ``benchmarks/results/``, and the paths that lead to the figures in them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.util.text import nearest

FOLDER = Path("benchmarks/results")
STEP = " > "  # between the steps of a path: names of figures hold dots and slashes
EVERY = "*"
# How figures were made; an entry may be null.
ORIGIN: dict[str, Any] = {
    "command": str, "seeds": (int, list), "date": str, "commit": str, "versions": dict, "cpu": str, "gpu": str,
    "precision": str, "recorded": str, "note": str,
}  # fmt: skip

Steps = tuple[str, ...]


class ResultFiles:
    """The result files of a project; each is read once.

    A path is a file and names or numbers of entries: ``maml.json > mse > MAML > 0``. An entry ``*`` stands for all.

    Args:
        folder: Where they are.
        added: Files that are not written yet, by name.
    """

    def __init__(self, folder: Path = FOLDER, added: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self._read: dict[str, Any] = dict(added or {})

    def value(self, path: Steps) -> Any:
        """Return what is at a path: a list where a step is ``*``, and None wherever a step before is null.

        Raises:
            UserError: If there is no such file or entry.
        """
        return self._below(self._file(path[0]), path, 1)

    def origin(self, path: Steps) -> dict[str, Any]:
        """Return how the figures at a path were made: of each entry of `ORIGIN`, the nearest one above them.

        Raises:
            UserError: If there is no such file or entry, or it is not said which command made them.
        """
        found: dict[str, Any] = {}
        for end in range(1, len(path) + 1):
            if EVERY in path[:end]:
                break
            entries = self.value(path[:end])
            if isinstance(entries, dict):
                found |= {name: entries[name] for name in ORIGIN if name in entries}
        for name, value in found.items():
            if value is not None and not isinstance(value, ORIGIN[name]):
                raise UserError(f"{self.folder / path[0]}: {name}: it can't be {json.dumps(value)}")
        if "command" not in found:
            raise UserError(
                f'{self.folder / path[0]} does not say which command made it; add "command" to it '
                "(null if nobody knows any more)"
            )
        return found

    def expand(self, path: Steps) -> Iterator[Steps]:
        """Yield the paths that a path with ``*`` stands for, also in the name of the file.

        Raises:
            UserError: If there is no such file or entry.
        """
        place = next((number for number, step in enumerate(path) if EVERY in step), None)
        if place is None:
            yield path
            return
        if place == 0:
            on_disk = {file.relative_to(self.folder).as_posix() for file in self.folder.glob(path[0])}
            names = sorted(on_disk | {name for name in self._read if Path(name).match(path[0])})
        else:
            entries = self.value(path[:place])
            names = list(entries) if isinstance(entries, dict) else list(map(str, range(len(entries or ()))))
        for name in names:
            yield from self.expand((*path[:place], name, *path[place + 1 :]))

    def _file(self, name: str) -> Any:
        if name not in self._read:
            path = self.folder / name
            try:
                self._read[name] = json.loads(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                known = (file.relative_to(self.folder).as_posix() for file in self.folder.rglob("*.json"))
                raise UserError(f"{path}: there is no such result file{nearest(name, known)}") from None
            except OSError as error:
                raise UserError(f"{path}: it can't be read ({error.strerror})") from error
            except json.JSONDecodeError as error:
                raise UserError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
            except UnicodeDecodeError as error:
                raise UserError(f"{path}: it is not UTF-8: {error.reason}") from error
        return self._read[name]

    def _below(self, value: Any, path: Steps, place: int) -> Any:
        """Return what the steps from `place` on lead to."""
        if place == len(path) or value is None:
            return value
        step, before = path[place], f"{self.folder / path[0]}: {STEP.join(path[1:place]) or 'the file'}"
        if isinstance(value, dict) and step == EVERY:
            return [self._below(item, path, place + 1) for item in value.values()]
        if isinstance(value, list) and step == EVERY:
            return [self._below(item, path, place + 1) for item in value]
        if isinstance(value, dict):
            if step not in value:
                raise UserError(f"{before} has no '{step}'{nearest(step, value, _among(value))}")
            return self._below(value[step], path, place + 1)
        if isinstance(value, list):
            if not step.lstrip("-").isdecimal() or not -len(value) <= int(step) < len(value):
                raise UserError(f"{before} has no '{step}', it is a list of {len(value)}")
            return self._below(value[int(step)], path, place + 1)
        raise UserError(f"{before} has no '{step}', it is {json.dumps(value)}")


def steps_of(text: str, start: Steps = ()) -> Steps:
    """Read a path as it is written; it continues another one unless it begins with a file.

    Args:
        text: ``maml.json > mse > MAML``, or ``mse > MAML``.
        start: Where a path without a file begins.

    Raises:
        UserError: If there is no file to begin with.
    """
    steps = tuple(step for step in text.split(STEP) if step)
    if steps and steps[0].endswith(".json"):
        return steps
    if not start:
        raise UserError(f"'{text}' names no result file; begin with one: FILE.json{STEP}{text}")
    return (*start, *steps)


def _among(entries: dict[str, Any]) -> str:
    names = list(entries)
    return f"; there are {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}" if names else ""
