"""``python -m PACKAGE``: the commands.

Nothing heavy is imported here, so that ``--help`` and a mistyped command are answered at once.
"""

import atexit
import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from litlab.util.team import typed, use_package

# By name: the function that runs it, as module:function, and its help. A module is imported when its command is used.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Train": {
        "fit": ("litlab.cli.fit:fit", "train, then test the best checkpoint"),
        "validate": ("litlab.cli.fit:evaluate", "evaluate a checkpoint on the validation split"),
        "test": ("litlab.cli.fit:evaluate", "evaluate a checkpoint on the test split"),
        "predict": ("litlab.cli.fit:predict", "read raw files and write a predictions file"),
        "sweep": ("litlab.sweep.sweep:main", "search the settings of an experiment"),
        "bench": (
            "litlab.commands.bench.bench:main",
            "find the settings that make an experiment faster on this machine",
        ),
    },
    "Look at runs": {
        "runs": ("litlab.runs.table:main", "list runs: status, metrics, minutes, memory, commit"),
        "compare": ("litlab.runs.compare:main", "show settings and metrics of runs side by side"),
        "report": ("litlab.report.report:main", "write a page about runs, for people who were not there"),
        "reproduce": ("litlab.runs.reproduce:main", "print the commands that repeat a run on the same code"),
    },
    "Use a run elsewhere": {
        "export": (
            "litlab.export.export:main",
            "write a run's model as a folder that needs neither this project nor its checkpoint",
        ),
        "serve": (
            "litlab.serve.serve:main",
            "answer HTTP requests with a run's model or an exported one, with a page to try it",
        ),
        "shards": (
            "litlab.commands.shards.shards:main",
            "write the data of an experiment into a few large files, to stream them",
        ),
        "consolidate": ("litlab.runs.consolidate:main", "write a sharded checkpoint as one file"),
    },
    "Work on the project": {
        "new": ("litlab.scaffold.new:main", "write a new experiment: network or model, data, config and test"),
        "remove": ("litlab.scaffold.remove:main", "delete an experiment again"),
        "rename": ("litlab.scaffold.rename:main", "give the package another name"),
        "doctor": ("litlab.doctor.doctor:main", "check this machine: Python, torch, devices, memory, disk, data"),
        "results": (
            "litlab.report.results:main",
            "write the tables of results in README.md and docs/",
        ),
        "schema": ("litlab.editor.schema:main", "write the JSON schemas with which an editor checks configs"),
        "completion": ("litlab.editor.completion:main", "print the completion script of a shell"),
    },
}
EXPERIMENT = (
    "fit",
    "validate",
    "test",
    "predict",
)  # commands that train or evaluate; the others have options of argparse

USAGE = """\
usage: {command} COMMAND [--config FILE ...] [--key value ...]

{commands}

An experiment is a YAML file. Add overlays and flags; later ones win:
  {command} fit --config configs/mine.yaml
  {command} fit --config configs/mine.yaml --config configs/with/bf16.yaml --trainer.max_epochs 3
  {command} fit --config configs/mine.yaml --check      try a few steps, estimate time and memory

A run is named by its folder, its experiment (the newest run), last, best, or a checkpoint; it knows its own config:
  {command} fit --resume last
  {command} test --run mine
  {command} predict --run mine/version_3 --input photos/ --output predictions.csv
  {command} runs mine
  {command} export --run mine --format onnx
  {command} serve --run mine

More help:
  {command} COMMAND --help                  all its settings
  {command} COMMAND --model.help MyModel    the settings of one class (also --data.help, --checkpoint.help ...)
  {command} COMMAND ... --print_config      the whole config of the run
"""


def main(package: str | None) -> NoReturn:
    """Run ``sys.argv`` as a command of a team's package, and exit.

    Args:
        package: Its import name, whose models, data and configs the command works with: ``__package__`` of a
            ``__main__.py``.

    Raises:
        SystemExit: In any case, with 0 for success, 1 for a failed check and 2 for bad input.
    """
    try:
        code = run_command(package or "")
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    sys.exit(code)


def run_command(package: str) -> int:
    """Answer ``--help``, or run the command that ``sys.argv`` names.

    Args:
        package: Import name of the team's package.

    Returns:
        The exit code: 0; 2 after one line on what is wrong; 130 after Ctrl-C.
    """
    use_package(package)
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help", "help"):
        groups = [f"{title}:\n{_list_commands(group)}" for title, group in COMMANDS.items()]
        print(USAGE.format(command=typed(), commands="\n\n".join(groups)), end="")
        return 0

    from litlab.errors import UserError

    try:
        function = find_command(name)
        if name in EXPERIMENT:
            return run_experiment(function)  # pyright: ignore[reportArgumentType]
        return function(sys.argv[2:])
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def find_command(name: str) -> Callable[..., int]:
    """Import what runs a command.

    Raises:
        UserError: If there is no such command; names the nearest.
    """
    from litlab.errors import UserError
    from litlab.util.text import nearest

    commands = {name: command for group in COMMANDS.values() for name, command in group.items()}
    if name not in commands:
        raise UserError(f"{name}: there is no such command{nearest(name, commands, f'; see {typed()} --help')}")
    module, _, function = commands[name][0].partition(":")
    if "torch" not in sys.modules:
        gc.disable()  # or a fifth of the time goes to looking through millions of new objects, which all stay
    try:
        return getattr(import_module(module), function)
    finally:
        if not gc.isenabled():
            gc.freeze()
            atexit.register(gc.unfreeze)  # or libraries that count their objects at the end would find some left
            gc.enable()


def run_experiment(run: Callable[[list[str]], None]) -> int:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; what ends it becomes one line, or keeps its traceback."""
    from litlab.cli.argv import has_flag, pin_run
    from litlab.cli.messages import describe_error
    from litlab.cli.quiet import silence_noise

    silence_noise()
    if sys.argv[1] == "fit" and has_flag(sys.argv[2:], "--seeds", "--folds"):
        return import_module("litlab.commands.repeat.repeat").main(sys.argv[2:])
    try:
        sys.argv[1:] = pin_run(sys.argv[1:])  # which Lightning starts the other processes of a run with
        run(sys.argv[1:])
    except Exception as error:
        line = describe_error(error)
        if line is None or os.environ.get("LITLAB_TRACEBACK"):
            raise
        print(f"error: {line}", file=sys.stderr)
        return 2
    return 0


def _list_commands(group: dict[str, tuple[str, str]]) -> str:
    return "\n".join(f"  {name:11} {help_}" for name, (_, help_) in group.items())
