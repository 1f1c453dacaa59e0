"""One line for what a person can put right: what the parser refuses, and what ends a run.

jsonargparse describes a mistake as a tree of all types that it tried. The innermost line says what
is wrong; here it gets the file and line of the key, and the nearest name that exists. A traceback
is never lost: it is in a file.
"""

import errno
import logging
import os
import pickle
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import callbacks
from torch import optim

from litlab.callbacks.compile import explain_failure
from litlab.cli.argv import CONFIG, flags_of
from litlab.cli.classes import find_classes, imported
from litlab.cli.trust import explain_denied
from litlab.errors import UserError, first_line, list_causes
from litlab.util.device import is_out_of_memory
from litlab.util.team import package
from litlab.util.text import nearest
from litlab.util.yaml import find_line

# What jsonargparse (4.53) puts around the innermost line.
FRAME = re.compile(
    r'^(\s|- |Parser key "[^"]+":|Not of type [^:]*:'
    r"|Type .* expects a function or a callable class:"
    r"|(Problem with|Does not validate|Subtypes:|Errors:|Given value"
    r"|Expected a path but|Expected a <class 'None).*)*"
    r"|\. Got value: .*"
)
# What it says of one type of several; any other line knows more.
ONE_TYPE = (
    "Expected a",
    "Not a valid subclass",
    "Subclass types expect",
    "a class path",
    "a dict with",
)
TYPE = re.compile(r"<class '(?:\w+\.)*([^']+)'>|Literal\[([^]]*)\]|typing\.")  # as Python writes it
# What says that a file system, and not the code, is the problem.
OF_THE_SYSTEM = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
OUT_OF_MEMORY = (
    "out of memory: try half of --data.batch_size with twice --trainer.accumulate_grad_batches, or "
    "--trainer.precision bf16-mixed"
)
# Modules of Lightning (2.6.6) that refuse settings by a ValueError or RuntimeError.
REFUSING = ("/pytorch/loops/fit_loop.py", "/pytorch/callbacks/early_stopping.py")
# What a constructor says of its arguments
SHORTENED = (ValueError, MisconfigurationException, ImportError, OSError)


# What the parser refuses


def explain(message: str, parser: Any) -> str:
    """Return one line for what jsonargparse refuses: where it is, what is wrong, and the nearest
    valid name.

    Args:
        message: What jsonargparse says.
        parser: The parser, whose `argv` it has parsed.
    """
    if message.startswith("unrecognized arguments: "):
        word = message.split()[2]
        name = word.partition("=")[0].removeprefix("--")
        section = nearest(
            name.partition(".")[0], _settings(parser), "; a config file follows --config"
        )
        return f"{word}: there is no such setting{nearest(name, _settings(parser), section)}"
    if message.startswith("the following arguments are required: "):
        return f"{message}; give --config FILE, such as --config configs/mine.yaml"

    leaves = [line for line in message.splitlines() if FRAME.sub("", line)]
    leaf = min(leaves, key=lambda line: FRAME.sub("", line).startswith(ONE_TYPE), default=message)
    before, _, after = message.partition(leaf)
    keys = re.findall(r'Parser key "([^"]+)"', before + leaf)
    classes = re.findall(r"class_path[ =]'([^']+)'", before + leaf)
    text = FRAME.sub("", leaf)

    if found := re.search(r"(?:Group '(.+)' does not accept o|O)ption '([^']+)'", text):
        keys += filter(None, found.groups())
        text = f"there is no such key{nearest('.'.join(keys), _settings(parser))}"
        if classes:
            target, other = imported(classes[-1]), ArgumentParser()
            add = (
                other.add_class_arguments
                if isinstance(target, type)
                else other.add_function_arguments
            )
            names = add(target, fail_untyped=False)
            text = f"{classes[-1].rpartition('.')[2]} has no '{found[2]}'{nearest(found[2], names)}"
    elif found := re.match(r"Importing '(.+)' is not allowed", text):
        text = explain_denied(found[1])
    elif found := re.fullmatch(r"No module named '(\w+)'", text):
        text = f"the package {found[1]} is not installed; install it, or correct the path"
    elif found := re.match(r"module '(.+)' has no attribute '(.+)'", text):
        text = f"{found[1]} has no '{found[2]}'{nearest(found[2], dir(sys.modules[found[1]]))}"
    elif found := re.match(r"Expected a dot import path string: (.+)", text):
        known = [
            *find_classes(package()),
            *dir(torch.nn),
            *dir(optim),
            *dir(optim.lr_scheduler),
            *dir(callbacks),
        ]
        text = f"there is no class '{found[1]}'{nearest(found[1], known, '; give its full path')}"
    elif found := re.match(r"Expected an? (.*)", text):
        union = [] if "Got value" in leaf else re.findall(r"Subtypes: \[(.*)\]", before)
        kinds = TYPE.sub(r"\1\2", [found[1], *union][-1]).replace("NoneType", "null")
        text = f"is not valid; it must be {'one of ' if ', ' in kinds else ''}{kinds}"
    if text.startswith("is not valid"):  # the value stands elsewhere
        text = f"{re.findall('(?:Got|Given) value: (.*)', leaf + after)[0]} {text}"
    key = ".".join(keys)
    return ": ".join(filter(None, [_find_place(key, parser.argv), key, text]))


def _settings(parser: ArgumentParser) -> list[str]:
    return [action.dest for action in parser._actions]


def _find_place(key: str, argv: list[str]) -> str:
    """Return the file and line that set a key, the last of several; empty if that is a flag, or not
    known.
    """
    for flag, value in reversed(flags_of(argv)):
        if flag.lstrip("-").rstrip("+") == key:
            return ""
        line = find_line(Path(value), key) if flag in CONFIG and os.path.isfile(value) else None
        if line is not None:
            return f"{value}:{line}"
    return ""


# What ends a command


def describe_error(error: BaseException) -> str | None:
    """Return the line to print for what a person can put right; None for a bug, which is shown with
    its traceback.

    Args:
        error: What ended the command.
    """
    causes = list_causes(error)
    for cause in causes:
        if isinstance(cause, UserError):
            return str(cause)
    notes = getattr(error, "__notes__", [])
    place = [note.removeprefix("building ") for note in notes if note.startswith("building ")][:1]
    failure = explain_failure(error)
    if is_out_of_memory(error):
        line = OUT_OF_MEMORY
    elif failure is not None:
        line = failure
    elif place and isinstance(causes[-1], pickle.UnpicklingError):
        line = (
            "a file of weights holds other things, or is damaged; look into "
            f"{torch.hub.get_dir()}/checkpoints"
        )
    elif place and isinstance(causes[-1], SHORTENED):
        line = first_line(causes[-1])
    elif is_refusal(error) or getattr(error, "errno", None) in OF_THE_SYSTEM:
        line = first_line(error)
    else:
        return None
    tracebacks = [note for note in notes if note.startswith("traceback ")]
    if place and not tracebacks:
        tracebacks = ["LITLAB_TRACEBACK=1 shows where"]
    return "; ".join([": ".join([*place, line]), *tracebacks])


def is_refusal(error: BaseException) -> bool:
    """Return whether Lightning refuses a setting, by the exception or by the file that raises
    it.
    """
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return isinstance(error, MisconfigurationException) or "".join(files[-1:]).endswith(REFUSING)


TIPS = (
    "litlogger",
    "configured with model summary callbacks",
    "stopped: `max_epochs=",
    "configured so 100%",
)
WARNINGS = (
    "OptimState8bit does not implement",  # torchao, when it compiles its step
    "To copy construct from a tensor",  # Lightning, as torchao keeps learning rates in tensors
    ".*does not have many workers",  # batches come from memory
    ".*not supported by the model summary",  # it counts, it need not weigh
    "Checkpoint directory .* exists",  # a resumed run's does
    ".*LeafSpec.*",  # Lightning with torch's pytree
)


def silence_noise() -> None:
    """Leave these messages out from now on."""
    tips = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    tips.addFilter(lambda record: not any(text in record.getMessage() for text in TIPS))
    enums = logging.getLogger("torch.utils._pytree")
    enums.addFilter(lambda record: "is an Enum subclass" not in record.getMessage())
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    # LRFinder sets the data up twice.
    warnings.filterwarnings("once", message="The number of training batches", append=True)
