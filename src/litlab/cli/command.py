"""``python -m PACKAGE``: the commands.

Nothing heavy is imported here, so that ``--help`` and a mistyped command are answered at once.
"""

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import NoReturn

from litlab.cli.streams import survive_lost_readers
from litlab.util.team import typed, use_package

COMMANDS = {
    "Train": {
        "fit": "train, then test the best checkpoint",
        "validate": "evaluate a checkpoint on the validation split",
        "test": "evaluate a checkpoint on the test split",
        "predict": "read raw files and write a predictions file",
        "sweep": "search the settings of an experiment",
        "bench": "find the settings that make an experiment faster on this machine",
    },
    "Look at runs": {
        "runs": "list runs: status, metrics, minutes, memory, commit",
        "compare": "show settings and metrics of runs side by side",
        "report": "write a page about runs, for people who were not there",
        "reproduce": "repeat a run with its settings, on the same code",
    },
    "Use a run elsewhere": {
        "export": "write a run's model as a folder that needs neither this project nor its checkpoint",
        "serve": "answer HTTP requests with a run's model or an exported one, with a page to try it",
        "shards": "write the data of an experiment into a few large files, to stream them",
        "consolidate": "write a sharded checkpoint as one file",
    },
    "Work on the project": {
        "new": "write a new experiment: network or model, data, config and test",
        "remove": "delete an experiment again",
        "rename": "give the package another name",
        "doctor": "check this machine: Python, torch, devices, memory, disk, data",
        "results": "write the tables of results in README.md and docs/ from result files",
        "schema": "write the JSON schemas with which an editor checks and completes configs",
        "completion": "print the completion script of a shell",
    },
}
# Those whose main() needs no torch. They are imported by name: those above `cli` have no other way up.
LIGHT = {
    "runs": "litlab.runs.run_table",
    "compare": "litlab.runs.compare",
    "reproduce": "litlab.runs.reproduce",
    "sweep": "litlab.sweep.sweep",
    "bench": "litlab.bench.bench",
    "export": "litlab.export.export",
    "serve": "litlab.serve.serve",
    "shards": "litlab.cli.shards",
    "consolidate": "litlab.runs.consolidate",
    "new": "litlab.scaffold.new",
    "remove": "litlab.scaffold.remove",
    "rename": "litlab.scaffold.rename",
    "doctor": "litlab.doctor.doctor",
    "report": "litlab.report.report",
    "results": "litlab.report.results",
    "schema": "litlab.editor.schema",
    "completion": "litlab.editor.completion",
}
SEEDS = "litlab.seeds.seeds"  # `fit --seeds`
IMPORTS_LIGHTNING = (
    "bench",
    "completion",
    "consolidate",
    "export",
    "fit",
    "predict",
    "report",
    "serve",
    "shards",
    "schema",
    "sweep",
    "test",
    "validate",
)

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
        RuntimeError: If that file was not run as ``python -m PACKAGE``.
        SystemExit: In any case, with 0 for success, 1 for a failed check (``doctor``, ``results --check``) and 2 for
            bad input. (Lightning itself exits with 1 on a second signal.)
    """
    if not package:
        raise RuntimeError("run it as python -m PACKAGE")
    try:
        code = run_command(package)
    finally:
        sys.stdout.flush()  # a full disk must be noticed while the exit code can still say so
    sys.exit(code)


def run_command(package: str) -> int:
    """Answer ``--help``, or run the command that is named.

    Args:
        package: Import name of the team's package.

    Returns:
        The exit code.
    """
    use_package(package)
    survive_lost_readers(sys.argv[1:])
    verb = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if verb in ("-h", "--help", "help"):
        print(USAGE.format(command=typed(), commands="\n\n".join(map(_group, COMMANDS))), end="")
        return 0

    from litlab.cli.environment import check_variables, check_working_directory
    from litlab.errors import UserError
    from litlab.util.nearest import nearest

    known = [name for group in COMMANDS.values() for name in group]
    try:
        if verb not in known:
            hint = nearest(verb, known, f"; choose from {', '.join(known)}")
            raise UserError(f"{verb}: there is no such command{hint}")
        check_working_directory()
        if verb in IMPORTS_LIGHTNING:
            check_variables()  # Lightning reads them when it is imported
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if verb in LIGHT:
        return import_module(LIGHT[verb]).main(sys.argv[2:])
    if verb == "fit" and any(word.partition("=")[0] == "--seeds" for word in sys.argv[2:]):
        return import_module(SEEDS).main(sys.argv[2:])

    if "LOCAL_RANK" in os.environ:  # else the death of the first rank shows a page of C++ frames
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with _without_garbage_collection():
        from litlab.cli.start import quiet, register_classes, run

        quiet()
        register_classes()
    return run()


def _group(title: str) -> str:
    """Return the lines of a group of commands."""
    return "\n".join([f"{title}:", *(f"  {name:11} {what}" for name, what in COMMANDS[title].items())])


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Import quickly: a fifth of the time goes to looking through millions of new objects, which all stay.

    They are not looked at later either: that would interrupt the training.
    """
    first = "torch" not in sys.modules  # else what is not part of the imports would stay, too
    if first:
        gc.disable()
    try:
        yield
    finally:
        if first:
            gc.freeze()
            atexit.register(gc.unfreeze)  # or libraries that count their objects at the end would find some left
            gc.enable()
