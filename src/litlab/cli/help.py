"""``--help`` of the verbs that train and evaluate: what is used most first, then every setting by group."""

import re
from argparse import Action, ArgumentParser, _ArgumentGroup

from jsonargparse import DefaultHelpFormatter

from litlab.cli.sections import SECTIONS
from litlab.util.team import is_own, package

MOST_CLASSES = 12  # of a list of classes that a setting can name
FIT = """\
Train an experiment, then test its best checkpoint. Settings come from the config files, in their
order, then from flags. Every key of a config is a flag.

  --config configs/mine.yaml   the experiment; each further --config adds to it (see configs/with/)
  --check                      try a few steps: does it work, what time and memory does it need?
  --plan 1x8                   what each strategy would need on 1 node with 8 devices; runs nothing
  --resume last                continue an interrupted run in its folder
  --seeds 0,1,2                train with each seed; mean, deviation and confidence interval
  --print_config               show the whole config and stop

Changed most often:
  --trainer.max_epochs 20      --trainer.precision bf16-mixed        --seed_everything 1
  --data.batch_size 256        --trainer.devices 1                   --experiment mine
  --data.path DIR              --trainer.accumulate_grad_batches 4   --checkpoint.monitor val/acc
  --model.optimizer.lr 0.001   --trainer.gradient_clip_val 1.0       --early_stopping.patience 5

The settings of one class, with defaults and bounds:
  --model.help MyModel         --data.help MyData                    --trainer.callbacks.help EMA
  --checkpoint.help            --compile.help                        --trainer.strategy.help DDPStrategy
"""
EVALUATE = """\
{what} A run knows its config; flags change settings.

  --run last                   the newest run; also: an experiment (its newest run), a run's folder,
                               best, a checkpoint, an exported model
  --ckpt_path last             the last checkpoint of that run instead of its best
{more}
Changed most often:
  --data.batch_size 256        --trainer.precision 32-true           --trainer.devices 1
"""
PREDICT = """\
  --input FILE_OR_FOLDER       what to predict
  --output predictions.csv     where to write the predictions
"""
FIRST_SCREEN = {
    "fit": FIT,
    "validate": EVALUATE.format(what="Evaluate a checkpoint on the validation split.", more=""),
    "test": EVALUATE.format(what="Evaluate a checkpoint on the test split.", more=""),
    "predict": EVALUATE.format(what="Read raw files and write a predictions file.", more=PREDICT),
}

LENGTH = "fast_dev_run max_epochs min_epochs max_steps min_steps max_time overfit_batches val_check_interval"
LENGTH += " check_val_every_n_epoch num_sanity_val_steps reload_dataloaders_every_n_epochs"
LENGTH += " limit_train_batches limit_val_batches limit_test_batches limit_predict_batches"
DEVICES = "accelerator devices num_nodes strategy precision tf32 sync_batchnorm use_distributed_sampler plugins"
STEPS = "accumulate_grad_batches gradient_clip_val gradient_clip_algorithm deterministic benchmark inference_mode"
# Which settings are listed under which title; the first pattern that a setting matches whole decides.
GROUPS = {
    "Command and run": "help|config|print_config|check|plan|plan_memory|resume|seeds|run|input|output"
    "|return_predictions|ckpt_path|experiment|seed_everything|init_from|test_after_fit|allow_modules",
    "Model and data": "model|data",
    "Checkpoints, callbacks and techniques (SECTION.help shows their settings)": "|".join(SECTIONS)
    + "|channels_last|threads",
    "Trainer: how long, how often": rf"trainer\.({LENGTH.replace(' ', '|')})",
    "Trainer: devices and precision": rf"trainer\.({DEVICES.replace(' ', '|')})",
    "Trainer: steps": rf"trainer\.({STEPS.replace(' ', '|')})",
    "Trainer: loggers, callbacks, debugging": r"trainer(\..*)?",
    "Others": ".*",
}


class HelpFormatter(DefaultHelpFormatter):
    """jsonargparse's formatter, with docstrings as plain text and lists of classes that can be read."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text in FIRST_SCREEN.values() else super()._fill_text(text, width, indent)

    def _get_help_string(self, action: Action) -> str:
        text = plain(super()._get_help_string(action))
        head, known, classes = text.partition(", known subclasses: ")
        if not known:
            return text
        paths = [path for path in classes.removesuffix(")").split(", ") if not _is_internal(path)]
        names = [_short(path) for path in sorted(paths, key=lambda path: path.partition(".")[0] != package())]
        if hidden := len(names) - MOST_CLASSES:
            names = names[:MOST_CLASSES] + ([f"{hidden} others"] if hidden > 0 else [])
        return f"{head}; classes: {', '.join(names)})"


def arrange(parser: ArgumentParser, verb: str) -> None:
    """Give the parser of a verb its first screen, and put its settings into `GROUPS`.

    Args:
        parser: The parser.
        verb: ``fit``, ``validate``, ``test`` or ``predict``.
    """
    parser.description = FIRST_SCREEN[verb]
    listed = [action for action in parser._actions if not action.dest.endswith(".help")]
    groups = []
    for title, pattern in GROUPS.items():
        group = _ArgumentGroup(parser, title)
        group._group_actions = [action for action in listed if re.fullmatch(pattern, action.dest)]
        listed = [action for action in listed if action not in group._group_actions]
        groups.append(group)
    parser._action_groups = groups


def plain(text: str) -> str:
    """Return a docstring's text without Sphinx's roles and double backquotes."""
    text = re.sub(r":\w+:`~?([^`<]*\.)?([^`<]+)`", r"\2", text)
    return re.sub(r"``([^`]*)``", r"\1", text)


def _is_internal(path: str) -> bool:
    """Return whether a class is one of litlab's that no subpackage exports."""
    return path.startswith("litlab.") and path.count(".") > 2


def _short(path: str) -> str:
    """Return the name of a class as it can be written in a config."""
    return path.rpartition(".")[2] if is_own(path) or path.startswith("lightning.") else path
