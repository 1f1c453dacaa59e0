"""Check every path and value of a sweep against the real config, before the first trial."""

import importlib
import inspect
import io
import logging
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from litlab.cli.argv import expand
from litlab.commands.sweep.processes import Stop, Unfinished, run
from litlab.commands.sweep.space import Space, corner_points, overlay
from litlab.commands.sweep.spec import SweepSpec
from litlab.commands.sweep.trial import flags
from litlab.errors import UserError
from litlab.util.team import package, use_package

SECONDS = 600.0  # that the check may take


def check_space(spec: SweepSpec, stop: Stop) -> Space:
    """Parse the config with the corners of all ranges and with all choices, in a process that has the imports.

    Args:
        spec: The sweep.
        stop: Whether to stop.

    Returns:
        The space; its blocks of another class than the base config's have the defaults of what the base sets for its
        own class: a block stands for itself, while an overlay keeps settings of the same name.

    Raises:
        UserError: If a value does not fit; with file, key and the nearest valid one.
        SystemExit: If the check itself failed; its traceback has been printed.
    """
    answers: list[Space | UserError] = []
    try:
        status = run(report_space, package(), spec, hear=answers.append, stop=stop, stall_seconds=SECONDS)
    except Unfinished as error:
        if error.killed:
            raise UserError("sweep: the fork server was killed; there may be too little memory.") from error
        raise
    if not answers:
        raise SystemExit(status or 1)
    if isinstance(answers[0], UserError):
        raise answers[0]
    return answers[0]


def report_space(connection: Connection, team: str, spec: SweepSpec) -> None:
    """Report the space or what is wrong with it, for the package of a team, in a process that `run` has started."""
    use_package(team)
    logging.disable()  # of the seed that it sets, of what the model or the data have to say
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            answer: Space | UserError = completed_space(spec)
        except UserError as error:
            answer = error
    connection.send(answer)


def completed_space(spec: SweepSpec) -> Space:
    """Check the values of a sweep file, and return the space as `check_space` does."""
    base = [f"--config={path}" for path in spec.base]
    parser = _parser_after(base)
    _parsed(parser, [*base, *flags(spec.settings)], f"{spec.file}: settings: ")
    common = [*base, *flags(spec.settings), *spec.arguments]
    plain = _parsed(parser, common)
    space = {path: replace(entry, choices=dict(entry.choices)) for path, entry in spec.space.items()}
    for point in corner_points(spec.space):
        settings = overlay(spec.space, point)
        parsed = _parsed(parser, [*common, *flags(settings)], f"{spec.file}: space: ")
        for path, name in point.items():
            kept = _kept_of_another_class(settings.get(path), _at(plain, path), _at(parsed, path))
            if kept and space[path].choices:
                block = space[path].choices[name]
                block = block if isinstance(block, dict) else {"class_path": block}
                space[path].choices[name] = {**block, "init_args": {**(block.get("init_args") or {}), **kept}}
    return space


def _parser_after(arguments: list[str]) -> Any:
    """Return the parser of ``fit`` after it has parsed a command line; nothing was built."""
    from litlab.cli.config import Command
    from litlab.cli.resolve import import_all_classes

    import_all_classes()
    return Command(["fit", *arguments]).parser


def _parsed(parser: Any, arguments: list[str], place: str = "") -> Any:
    """Return the settings of a command line.

    Args:
        parser: That of ``fit``.
        arguments: The command line after the verb.
        place: What to put in front of a message about one of the flags.

    Raises:
        UserError: If the parser refuses it.
    """
    parser.argv = expand(["fit", *arguments])  # where its messages look for the flag
    try:
        return parser.parse_args(parser.argv[1:])
    except UserError as error:
        line = str(error).removeprefix("--")
        in_a_file = Path(line.partition(":")[0]).is_file()
        raise UserError(line if in_a_file else place + line) from None


def _kept_of_another_class(block: Any, base: Any, parsed: Any) -> dict[str, Any]:
    """Return what a block would keep of the base config, though of another class, with the defaults of its own class.

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
    """Return the defaults of a class' parameters, those of its base classes included, where YAML can hold them."""
    module, _, name = class_path.rpartition(".")
    target = getattr(importlib.import_module(module), name)
    functions = [c.__init__ for c in reversed(target.__mro__)] if inspect.isclass(target) else [target]
    parameters = {name: p for function in functions for name, p in inspect.signature(function).parameters.items()}
    plain = (bool, int, float, str, list, tuple, type(None))
    return {name: p.default for name, p in parameters.items() if isinstance(p.default, plain)}


def _at(settings: Any, path: str) -> Any:
    """Return the settings at a path of flags, which leave ``init_args`` out; None where there are none."""
    for key in path.split("."):
        if not isinstance(settings, Namespace):
            return None
        if key not in settings and "init_args" in settings:
            settings = settings.init_args
        settings = settings.get(key)
    return settings
