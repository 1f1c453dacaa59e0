"""``--help`` of the verbs that train and evaluate: what is used most; ``--help all``: that, then
every setting by group.
"""

import re
from argparse import Action, RawDescriptionHelpFormatter

from jsonargparse import DefaultHelpFormatter

from litlab.util.team import package, typed
from litlab.util.text import some

# The screens are 80 columns wide at most, and show what is needed most often. jsonargparse lists
# every setting, which takes hundreds of lines, and seconds: it imports all classes.
ALL = """
Every setting (several screens):
  --help all
"""
FIT = """\
Train an experiment, then test its best checkpoint. Settings come from the
config files, in their order, then from flags. Every key of a config is a flag.

  --config configs/mine.yaml  the experiment; further ones add to it, such as
                              those in configs/with/
  --check                     try a few steps: does it work, what does it need?
  --plan 1x8                  what each strategy would need on 1 node with 8
                              devices; runs nothing
  --resume last               continue an interrupted run in its folder
  --seeds 0,1,2               train with each seed; mean, deviation, interval
  --print_config              show the whole config and stop

Changed most often:
  --trainer.max_epochs 20     --trainer.accumulate_grad_batches 4
  --data.batch_size 256       --trainer.gradient_clip_val 1.0
  --data.path DIR             --trainer.precision bf16-mixed
  --model.optimizer.lr 0.001  --early_stopping.patience 5
  --seed_everything 1         --checkpoint.monitor val/acc
  --experiment mine           --trainer.devices 1

The settings of one class, with defaults and bounds:
  --model.help MyModel        --trainer.callbacks.help EMA
  --data.help MyData          --checkpoint.help
"""
EVALUATE = """\
{summary}
A run knows its config; flags change settings.

  --run last                  the newest run; also: an experiment (its newest
                              run), a run's folder, a checkpoint
  --ckpt_path last            the last checkpoint of that run, not its best
{more}
Changed most often:
  --data.batch_size 256       --trainer.precision 32-true
  --trainer.devices 1
"""
PREDICT = """\
  --input FILE_OR_FOLDER      what to predict
  --output predictions.csv    where to write the predictions
"""
SCREENS = {
    "fit": FIT,
    "validate": EVALUATE.format(summary="Evaluate a checkpoint on the validation split.", more=""),
    "test": EVALUATE.format(summary="Evaluate a checkpoint on the test split.", more=""),
    "predict": EVALUATE.format(
        summary="Read raw files and write a predictions file.", more=PREDICT
    ),
}
FIRST_SCREEN = {verb: screen + ALL for verb, screen in SCREENS.items()}


def write_usage(verb: str) -> str:
    """Return the usage of a verb."""
    return f"{typed(verb)} [--config FILE ...] [--key value ...]"


class HelpFormatter(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """jsonargparse's formatter, which leaves the first screen as it is, writes types as YAML has
    their values, and names a few of many classes.
    """

    def _expand_help(self, action: Action) -> str:
        text = super()._expand_help(action)
        # Types as YAML has their values: Optional[Literal['min', 'max']] is 'min' | 'max' | null
        text = re.sub(r"Literal\[([^]]*)\]", lambda words: words[1].replace("', '", "' | '"), text)
        text = re.sub(r"Callable\[\[\w*\], (\w+)\]", r"\1", text)  # what it makes
        text = re.sub(r"(?<=\(type: )Optional\[(.*?)\](?=, default:|\)$)", r"\1 | null", text)
        # jsonargparse ends the help of a class with "(type: ..., known subclasses: a.B, c.D)"
        head, found, classes = text.partition(", known subclasses: ")
        if not found:
            return head
        # The team's own classes first: of many, only the first few are shown
        paths = sorted(
            classes.removesuffix(")").split(", "), key=lambda path: not path.startswith(package())
        )
        return f"{head}; classes: {some([path.rpartition('.')[2] for path in paths])})"
