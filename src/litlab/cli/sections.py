"""What a verb takes besides model, data and trainer: sections that each configure a callback, and a
few flags.
"""

from collections.abc import Container
from importlib import import_module

from lightning.pytorch.cli import LightningArgumentParser

from litlab.types import PositiveFloat, PositiveInt

# Settings of a command, which are not part of the config that a run keeps.
COMMAND_ONLY = (
    "config", "base", "resume", "run", "seeds", "folds", "check", "plan", "plan_memory", "input",
    "output", "allow_modules", "data_changed", "ckpt_path", "print_config",
)  # fmt: skip

# By section: the callback that it configures (imported where it is named), whether it is on by
# default, and its help.
SECTIONS: dict[str, tuple[str, bool, str]] = {
    "checkpoint": (
        "litlab.checkpointing.callback.RunCheckpoint",
        True,
        "Which checkpoints are kept. null: none.",
    ),
    "early_stopping": (
        "litlab.callbacks.early_stopping.RunEarlyStopping",
        False,
        "When to stop early. null: never.",
    ),
    "freeze": (
        "litlab.callbacks.freeze.Freeze",
        False,
        "Which parameters are trained later than others, or not at all. null: all from the start.",
    ),
    "ema": (
        "litlab.callbacks.averaging.EMA",
        False,
        "Average of the weights, which is validated and kept. null: none.",
    ),
    "swa": (
        "litlab.callbacks.averaging.SWA",
        False,
        "Mean of the last epochs' weights, which is validated and kept. null: none.",
    ),
    "grad_norms": (
        "litlab.callbacks.gradients.GradNorms",
        False,
        "Logs the norm of each parameter's gradient. {}: on, null: off.",
    ),
    "nan_guard": (
        "litlab.callbacks.nan_guard.NaNGuard",
        True,
        "What to do when a loss or gradient is not a number. null: nothing.",
    ),
    "agc": (
        "litlab.callbacks.gradients.AGC",
        False,
        "Adaptive clipping, by the norms of the weights. null: none.",
    ),
    "activation_checkpointing": (
        "litlab.callbacks.activation_checkpointing.ActivationCheckpointing",
        False,
        "Which activations are not kept, but computed again in the backward pass. null: none.",
    ),
    "compile": (
        "litlab.callbacks.compile.Compile",
        True,
        "torch.compile, in place. null, or a mode of null: off.",
    ),
    "vram": ("litlab.callbacks.memory.VRAM", True, "Memory and speed per epoch. null: off."),
}


def add_arguments(
    parser: LightningArgumentParser, verb: str, words: Container[str] = SECTIONS
) -> None:
    """Add the sections and flags to the parser of a verb.

    Args:
        parser: The parser.
        verb: ``fit``, ``validate``, ``test`` or ``predict``.
        words: All words of configs and flags. A section that is off and not among them stays null,
            and its class is not imported.
    """
    # The sections, each null or a class: a subclass may take its place
    add = parser.add_argument
    for name, (path, is_on, text) in SECTIONS.items():
        kind = type(None)  # of a section that nothing names: only null is valid
        if is_on or name in words:
            module, _, class_name = path.rpartition(".")
            kind = getattr(import_module(module), class_name)
        # As YAML would have it: the class is built with the rest of the config
        default = {"class_path": path} if is_on else None
        add(f"--{name}", type=kind | None, default=default, help=text)

    def add_text(name: str, text: str) -> None:
        add(name, type=str | None, default=None, help=text)

    # What an experiment is
    add(
        "--experiment", type=str, default="default",
        help="Name of the experiment. Its runs go to lightning_logs/NAME/version_N.",
    )  # fmt: skip
    text = "In a config file: those that it builds on."
    # The command line has read it already: it is here so that the parser does not refuse it
    add("--base", type=str | list[str] | None, default=None, help=text)
    text = "Whether fit ends with a test of the best checkpoint."
    add("--test_after_fit", type=bool, default=True, help=text)
    add(
        "--channels_last", type=bool, default=False,
        help="Whether convolutions keep their channels last in memory: often faster, same results "
             "up to rounding.",
    )  # fmt: skip

    # Runs and checkpoints
    add_text("--ckpt_path", "Checkpoint whose weights are used; of a run: best or last.")
    add_text("--init_from", "Run or checkpoint whose weights fit starts with.")
    add_text(
        "--allow_modules",
        "Modules, separated by commas, that the config of a run or checkpoint may name in addition "
        "to those of docs/security.md. Only as a flag.",
    )
    text = "Accept that the data of the run has other contents now. Only as a flag."
    add("--data_changed", action="store_true", help=text)
    if verb != "fit":
        add_text("--run", "Run or checkpoint to use, instead of a config.")
    else:
        add_text(
            "--resume",
            "Run to resume: its name, last, or auto (the experiment's newest run, or a new one).",
        )

        # What a fit does instead of one training
        text = "Fit once with each of several seeds, such as 0,1,2, and show mean and spread."
        add_text("--seeds", text)
        text = "Fit once with each of several folds of the data as its test split, such as 5."
        add("--folds", type=PositiveInt | None, default=None, help=text)
        text = "Try a few steps and estimate time and memory; no run is created."
        add("--check", action="store_true", help=text)
        add_text(
            "--plan",
            "Estimate memory and traffic of each of nodes x devices, such as 2x8; nothing is run.",
        )
        text = "Memory of a device of the plan, in GiB."
        add("--plan_memory", type=PositiveFloat, default=80.0, help=text)
    if verb == "predict":
        add_text("--input", "File or folder to predict.")
        add_text("--output", "File to write, instead of predictions.csv in the run's folder.")
