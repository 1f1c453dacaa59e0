"""``python -m PACKAGE``: the commands.

Nothing heavy is imported here, so that ``--help`` and a mistyped command are answered at once.
"""

import os
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from litlab.cli.commands import EXPERIMENT, import_command, list_commands
from litlab.util.options import answer
from litlab.util.team import typed, use_package

# Lines of at most 80 columns: a terminal is seldom narrower.
USAGE = """\
usage: {command} COMMAND [--config FILE ...] [--key value ...]

{commands}

An experiment is a YAML file; --check tries a few steps and estimates its time
and memory. Add overlays and flags; later ones win:
  {command} fit --config configs/mine.yaml --check
  {command} fit --config configs/mine.yaml
  {command} fit --config configs/mine.yaml --trainer.max_epochs 3
  {command} fit --config configs/mine.yaml --config configs/with/my.yaml

A run is named by its folder, its experiment (the newest run), last, or a
checkpoint; it knows its own config:
  {command} fit --resume last
  {command} test --run mine
  {command} predict --run mine/version_3 --input photos/
  {command} runs mine
  {command} export --run mine --format onnx
  {command} serve --run mine

More help:
  {command} COMMAND --help                what it does, and what is set most
  {command} fit --help all                all its settings
  {command} COMMAND --model.help MyModel  those of a class; also of data
  {command} COMMAND ... --print_config    the whole config of the run
"""


def main(package: str | None) -> NoReturn:
    """Run ``sys.argv`` as a command of a team's package, and exit.

    Args:
        package: Its import name, whose models, data and configs the command works with:
            ``__package__`` of a ``__main__.py``.

    Raises:
        SystemExit: In any case, with 0 for success, 1 for a failed check and 2 for bad input.
    """
    try:
        code = run_command(package or "")
        # Here, where a closed pipe is caught. Else Python would meet it as it exits, and print it.
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has gone, as `head` does
        # Python flushes once more as it exits: what is left then goes nowhere.
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
    # First of all: whatever looks for the team's classes, configs or commands asks for this name.
    use_package(package)
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help", "help"):
        # The longest name, consolidate, has 11 letters.
        lines = [f"  {name:11} {help_}" for name, (_, help_) in list_commands().items()]
        print(USAGE.format(command=typed(), commands="\n".join(lines)), end="")
        return 0

    def run(arguments: list[str]) -> int:
        # Printed here, before torch is imported, the first screen is there at once.
        asks = {"-h", "--help"}.intersection(arguments) and "all" not in arguments
        if asks and name in EXPERIMENT:
            from litlab.cli.help import FIRST_SCREEN, write_usage

            print(f"usage: {write_usage(name)}\n\n{FIRST_SCREEN[name]}", end="")
            return 0
        # Inside of `answer`, which makes one line of a mistyped command, too.
        function = import_command(name)
        # The experiment verbs get their name as well: `evaluate` is both `validate` and `test`.
        return run_experiment(function) if name in EXPERIMENT else function(arguments)

    return answer(run, sys.argv[2:])


def run_experiment(run: Callable[[list[str]], int]) -> int:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; what ends it becomes one line, or keeps
    its traceback.
    """
    from litlab.cli.noise import format_warning, silence_noise

    # Before anything is built: the first of these messages come with the Trainer.
    silence_noise()
    warnings.formatwarning = format_warning
    try:
        return run(sys.argv[1:])
    except Exception as error:
        from litlab.cli.run_errors import explain_error

        line = explain_error(error)
        if line is None or os.environ.get("LITLAB_TRACEBACK"):
            # A bug, or LITLAB_TRACEBACK asks for the traceback: Python prints it, and exits with 1.
            raise
        print(f"error: {line}", file=sys.stderr)
        return 2
