"""``python -m project``: the verbs.

Nothing heavy is imported here, so that ``--help`` and a mistyped verb are answered at once.
"""

import os
import sys

from litlab.cli.streams import survive_lost_readers

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
    "runs": "runs.ledger",
    "compare": "runs.compare",
    "reproduce": "runs.reproduce",
    "sweep": "sweeps.sweep",
}

USAGE = """\
usage: python -m project VERB [--config FILE ...] [--key value ...]

{verbs}

One experiment is one YAML file; overlays and flags stack on it, the later one wins:
  python -m project fit --config configs/cifar.yaml
  python -m project fit --config configs/cifar.yaml --config configs/with/bf16.yaml --trainer.max_epochs 3
  python -m project fit --config configs/cifar.yaml --check      will it work, and what will it cost?

A run is named by its folder, its experiment (the newest run), last, best, or a checkpoint; it knows its own config:
  python -m project fit --resume last
  python -m project test --run cifar
  python -m project predict --run cifar/version_3 --input photos/ --output predictions.csv
  python -m project runs cifar

More help:
  python -m project VERB --help                  every key that the verb understands
  python -m project VERB --model.help CifarCNN   the settings of one class (also --data.help, --checkpoint.help ...)
  python -m project VERB ... --print_config      the whole config that would be run
"""


def main() -> int:
    """Answers ``--help``, or hands over to the verb.

    Returns:
        The exit code: 0 for success, 2 for bad input. (Lightning itself exits with 1 on a second signal.)
    """
    survive_lost_readers(sys.argv[1:])
    verb = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if verb in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n".join(f"  {name:9} {what}" for name, what in VERBS.items())), end="")
        return 0
    if verb not in VERBS:
        from difflib import get_close_matches

        nearest = get_close_matches(verb, VERBS, n=1, cutoff=0.4)
        hint = f"did you mean '{nearest[0]}'?" if nearest else f"choose from {', '.join(VERBS)}."
        print(f"error: there is no verb '{verb}': {hint}", file=sys.stderr)
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

        return import_module(f"project.{LIGHT[verb]}").main(sys.argv[2:])

    if "LOCAL_RANK" in os.environ:  # else the death of the first rank is told by a page of C++ frames
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from litlab.cli.start import run

    return run()


if __name__ == "__main__":
    try:
        code = main()
    finally:
        sys.stdout.flush()  # a full disk is to be noticed while an exit code can still tell
    sys.exit(code)
