"""The commands by name: one table, a line each.

A command is a function ``(arguments) -> exit code``, imported when it is used. To take one away,
delete its folder in litlab/commands: its lines here then mean nothing. To add one, give
``src/PACKAGE/commands/__init__.py`` a dictionary ``COMMANDS`` with lines like these.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.util.imports import pausing_garbage_collection
from litlab.util.team import package, package_folder, typed
from litlab.util.text import nearest

Table = dict[str, tuple[str, str]]  # name: module:function, help

# These train or evaluate, and take every setting as a flag.
EXPERIMENT: Table = {
    "fit": ("litlab.cli.fit:fit", "train, then test the best checkpoint"),
    "validate": ("litlab.cli.evaluate:evaluate", "evaluate a checkpoint on the validation split"),
    "test": ("litlab.cli.evaluate:evaluate", "evaluate a checkpoint on the test split"),
    "predict": ("litlab.cli.evaluate:predict", "read raw files and write a predictions file"),
}
# These have options of their own. What only lists or compares runs does without torch, and is fast.
OTHERS: Table = {
    "sweep": ("litlab.commands.sweep.sweep:main", "search the settings of an experiment"),
    "bench": (
        "litlab.commands.bench.bench:main",
        "find the settings that make an experiment faster on this machine",
    ),
    "runs": ("litlab.runs.table:main", "list runs: status, metrics, minutes, commit"),
    "compare": ("litlab.runs.compare:main", "show settings and metrics of runs side by side"),
    "report": (
        "litlab.commands.report.report:main",
        "write a page about runs, for people who were not there",
    ),
    "reproduce": (
        "litlab.runs.reproduce:main",
        "print the commands that repeat a run on the same code",
    ),
    "export": (
        "litlab.commands.export.export:main",
        "write a run's model as a folder that works without this project",
    ),
    "serve": (
        "litlab.commands.serve.serve:main",
        "answer HTTP requests with a model, with a page to try it",
    ),
    "shards": (
        "litlab.commands.shards.shards:main",
        "write an experiment's images into a few large files, to stream",
    ),
    "consolidate": ("litlab.runs.consolidate:main", "write a sharded checkpoint as one file"),
    "new": (
        "litlab.commands.scaffold.new:main",
        "write a new experiment: network or model, data, config and test",
    ),
    "rename": ("litlab.commands.scaffold.rename:main", "give the package another name"),
    "doctor": (
        "litlab.commands.doctor.doctor:main",
        "check this machine: Python, torch, devices, memory, disk",
    ),
    "schema": (
        "litlab.commands.editor.schema:main",
        "write the JSON schema with which an editor checks configs",
    ),
}
# These are flags of `fit`.
FLAGS: Table = {
    "--check": ("litlab.commands.check.check:check", "try a few steps"),
    "--plan": ("litlab.commands.plan.plan:plan_command", "say what memory and traffic it takes"),
}


def list_commands() -> Table:
    """Return all commands that are there: litlab's, and those of the team's package."""
    # The team's commands come last: one with the name of ours takes its place.
    table = EXPERIMENT | {name: entry for name, entry in OTHERS.items() if _exists(entry)}
    has_own = (package_folder() / "commands/__init__.py").is_file()
    return table | import_module(f"{package()}.commands").COMMANDS if has_own else table


def import_command(name: str) -> Callable[..., Any]:
    """Import what runs a command, or a flag of ``fit``.

    Raises:
        UserError: If there is none; names the nearest.
    """
    # `--check` and `--plan` can be deleted like commands. They are not in the table, as nobody
    # types them as one.
    flags = {flag: entry for flag, entry in FLAGS.items() if _exists(entry)}
    table = flags if name in FLAGS else list_commands()
    if name not in table:
        raise UserError(
            f"{name}: there is no such command{nearest(name, table, f'; see {typed()} --help')}"
        )

    # For most commands this is what imports torch and Lightning
    module, _, function = table[name][0].partition(":")
    with pausing_garbage_collection():
        return getattr(import_module(module), function)


def _exists(entry: tuple[str, str]) -> bool:
    # Not find_spec: it would import the packages that all these modules are in
    module = entry[0].partition(":")[0]
    return Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py").is_file()
