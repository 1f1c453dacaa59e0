"""Every path and value of a sweep, held against the real config before the first trial."""

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from litlab.errors import UserError
from litlab.sweep.space import Choice, corner_points, overlay
from litlab.sweep.spec import SweepSpec, read_spec
from litlab.sweep.trial import flags
from litlab.util.team import package, use_package

if TYPE_CHECKING:
    from litlab.sweep.trial_launcher import TrialLauncher

Blocks = dict[str, list[list[Any]]]  # YAML path -> [name of the choice, its block], for blocks that had to be completed


def checked_space(spec: SweepSpec, launcher: "TrialLauncher") -> Blocks:
    """Parses the config with the corners of all ranges and with all choices, in a process that has the imports.

    Args:
        spec: The sweep.
        launcher: The fork server.

    Returns:
        Blocks of another class than the base config's, with the defaults of what the base sets for its own class: a
        block stands for itself, while an overlay keeps settings of the same name.

    Raises:
        UserError: If a value does not fit; with file, key and the nearest valid one.
    """
    answer = launcher.directory / "check.json"
    log = launcher.directory / "check.log"
    arguments = [package(), str(spec.file), str(answer), *spec.arguments]
    status = 1
    for message in launcher.run("litlab.sweep.check", arguments, log, 600):
        status = message.get("exit", status)
    if status != 0:
        raise RuntimeError(f"the check of {spec.file} failed:\n{log.read_text()}")
    found = json.loads(answer.read_text())
    if "error" in found:
        raise UserError(found["error"])
    return found["blocks"]


def main(team: str, file: str, answer: str, *arguments: str) -> None:
    """Checks a sweep file, and writes what it finds as JSON: ``error``, or ``blocks``.

    Args:
        team: Name of the team's package.
        file: The sweep file.
        answer: File for the result.
        arguments: Further arguments of every fit.
    """
    use_package(team)
    spec = read_spec(Path(file), arguments=list(arguments))
    try:
        found: dict[str, Any] = {"blocks": _check(spec)}
    except UserError as error:
        found = {"error": str(error)}
    Path(answer).write_text(json.dumps(found))


def _check(spec: SweepSpec) -> Blocks:
    base = [f"--config={path}" for path in spec.base]
    parse = _Parser()
    parse(base, "")
    parse([*base, *flags(spec.settings)], f"{spec.file}: settings: ")
    common = [*base, *flags(spec.settings), *spec.arguments]
    plain = parse(common, "")
    kept: dict[tuple[str, Any], dict[str, Any]] = {}
    for point in corner_points(spec.space):
        settings = overlay(spec.space, point)
        parsed = parse([*common, *flags(settings)], f"{spec.file}: space: ")
        for path, name in point.items():
            if isinstance(spec.space[path], Choice):
                found = _kept_of_another_class(settings.get(path), _at(plain, path), _at(parsed, path))
                kept.setdefault((path, name), {}).update(found)
    blocks: Blocks = {}
    for (path, name), defaults in kept.items():
        if defaults:
            block = spec.space[path].setting(name)
            block = block if isinstance(block, dict) else {"class_path": block}
            block = {**block, "init_args": {**(block.get("init_args") or {}), **defaults}}
            blocks.setdefault(path, []).append([name, block])
    return blocks


class _Parser:
    """Parses command lines of ``fit`` as the command line does, and builds nothing."""

    def __init__(self) -> None:
        from litlab.cli.experiment_cli import ExperimentCLI
        from litlab.cli.start import register_classes

        register_classes()

        class Parsing(ExperimentCLI):
            def instantiate_classes(self) -> None: ...

            def _run_subcommand(self, subcommand: str) -> None: ...

        self._class = Parsing
        self._cli: Any = None

    def __call__(self, arguments: list[str], place: str) -> Any:
        """The settings of a command line.

        Args:
            arguments: The command line after the verb.
            place: What to put in front of a message about one of the flags.

        Raises:
            UserError: If the parser refuses it.
        """
        try:
            if self._cli is None:
                sys.argv = [package(), "fit", *arguments]
                self._cli = self._class()
            self._cli.parser.arguments = ["fit", *arguments]  # where its messages look for the flag
            return self._cli.parser.parse_args(["fit", *arguments]).fit
        except UserError as error:
            line = str(error)
            raise UserError(place + line.removeprefix("--") if line.startswith("--") else line) from None


def _kept_of_another_class(block: Any, base: Any, parsed: Any) -> dict[str, Any]:
    """What a block would keep of the base config though it is of another class, with the defaults of its own class.

    Args:
        block: What the overlay sets.
        base: Settings at its path without the overlay.
        parsed: Settings at its path with it.
    """
    if not (isinstance(base, Namespace) and isinstance(parsed, Namespace)):
        return {}
    here, there = parsed.get("class_path"), base.get("class_path")
    if here is None or there is None or here == there:
        return {}
    written = (block.get("init_args") or {}) if isinstance(block, dict) else {}
    defaults = _defaults(here)
    return {
        name: defaults[name]
        for name, value in base.get("init_args", Namespace()).items(branches=True)
        if name in defaults and name not in written and parsed.init_args.get(name) == value != defaults[name]
    }


def _defaults(class_path: str) -> dict[str, Any]:
    """Defaults of a class' parameters, those of its base classes included, where YAML can hold them."""
    module, _, name = class_path.rpartition(".")
    target = getattr(importlib.import_module(module), name)
    functions = [c.__init__ for c in reversed(target.__mro__)] if inspect.isclass(target) else [target]
    parameters = {name: p for function in functions for name, p in inspect.signature(function).parameters.items()}
    plain = (bool, int, float, str, list, tuple, type(None))
    return {name: p.default for name, p in parameters.items() if isinstance(p.default, plain)}


def _at(settings: Any, path: str) -> Any:
    """The settings at a path of flags, which leave ``init_args`` out; None where there are none."""
    for key in path.split("."):
        if not isinstance(settings, Namespace):
            return None
        if key not in settings and "init_args" in settings:
            settings = settings.init_args
        settings = settings.get(key)
    return settings


if __name__ == "__main__":
    main(*sys.argv[1:])
