"""``python -m PACKAGE``: the verbs.

Nothing heavy is imported here, so that ``--help`` and a mistyped verb are answered at once.
"""

import os
import sys
from typing import NoReturn

from litlab.cli.streams import survive_lost_readers
from litlab.util.team import typed, use_package

VERBS = {
    "fit": "train, then test the best checkpoint",
    "validate": "evaluate a checkpoint on the validation split",
    "test": "evaluate a checkpoint on the test split",
    "predict": "read raw files, write a predictions file",
    "runs": "list runs: status, metrics, minutes, memory, commit",
    "compare": "settings and metrics of runs, side by side",
    "reproduce": "the same command on the same code again",
    "sweep": "search the settings of an experiment",
}
LIGHT = {  # modules that need no torch
    "runs": "runs.run_table",
    "compare": "runs.compare",
    "reproduce": "runs.reproduce",
    "sweep": "sweep.sweep",
}

USAGE = """\
usage: {command} VERB [--config FILE ...] [--key value ...]

{verbs}

One experiment is one YAML file; overlays and flags stack on it, the later one wins:
  {command} fit --config configs/mine.yaml
  {command} fit --config configs/mine.yaml --config configs/with/bf16.yaml --trainer.max_epochs 3
  {command} fit --config configs/mine.yaml --check      will it work, and what will it cost?

A run is named by its folder, its experiment (the newest run), last, best, or a checkpoint; it knows its own config:
  {command} fit --resume last
  {command} test --run mine
  {command} predict --run mine/version_3 --input photos/ --output predictions.csv
  {command} runs mine

More help:
  {command} VERB --help                  every key that the verb understands
  {command} VERB --model.help MyModel    the settings of one class (also --data.help, --checkpoint.help ...)
  {command} VERB ... --print_config      the whole config that would be run
"""


def main(package: str | None) -> NoReturn:
    """Run ``sys.argv`` as a command of a team's package, and exit.

    Args:
        package: Its import name, whose models, data and configs the command works with: ``__package__`` of a
            ``__main__.py``.

    Raises:
        RuntimeError: If that file was not run as ``python -m PACKAGE``.
        SystemExit: In any case, with 0 for success and 2 for bad input. (Lightning itself exits with 1 on a second
            signal.)
    """
    if not package:
        raise RuntimeError("run it as python -m PACKAGE")
    try:
        code = run_command(package)
    finally:
        sys.stdout.flush()  # a full disk is to be noticed while an exit code can still tell
    sys.exit(code)


def run_command(package: str) -> int:
    """Answer ``--help``, or hand over to the verb.

    Args:
        package: Import name of the team's package.

    Returns:
        The exit code.
    """
    use_package(package)
    survive_lost_readers(sys.argv[1:])
    verb = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if verb in ("-h", "--help", "help"):
        verbs = "\n".join(f"  {name:9} {what}" for name, what in VERBS.items())
        print(USAGE.format(command=typed(), verbs=verbs), end="")
        return 0
    if verb not in VERBS:
        from litlab.util.nearest import nearest

        hint = nearest(verb, VERBS, f": choose from {', '.join(VERBS)}.")
        print(f"error: there is no verb '{verb}'{hint}", file=sys.stderr)
        return 2

    from litlab.cli.environment import check_variables, check_working_directory
    from litlab.errors import UserError

    try:
        check_working_directory()
        if verb not in LIGHT or verb == "sweep":
            check_variables()  # Lightning reads them when it is imported
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    if verb in LIGHT:
        from importlib import import_module

        return import_module(f"litlab.{LIGHT[verb]}").main(sys.argv[2:])

    if "LOCAL_RANK" in os.environ:  # else the death of the first rank is told by a page of C++ frames
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from litlab.cli.start import run

    return run()
