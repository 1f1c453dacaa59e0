"""One line for what a person can put right: what the parser refuses, and what ends a run.

jsonargparse describes a mistake as a tree of all types that it tried. The innermost line says what is wrong; here it
gets the file and line of the key, and the nearest name that exists. A traceback is never lost: it is in a file.
"""

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import callbacks
from torch import nn, optim
from torch.optim import lr_scheduler

from litlab.cli.argv import CONFIG, find_bases, flags_of
from litlab.cli.resolve import find_classes
from litlab.cli.trust import explain_denied
from litlab.errors import UserError, first_line
from litlab.runs.folder import ROOT, RunFolder, write_text
from litlab.util.class_blocks import imported
from litlab.util.device import GIB, is_out_of_memory, peak_host_gib
from litlab.util.team import package
from litlab.util.text import nearest
from litlab.util.yaml import find_line

OUTER = ("Problem with", "Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a path but")
FRAME = re.compile(
    r'^Parser key "[^"]+":|^Not of type [^:]*:|^Type .* expects a function or a callable class:( Parser key.*)?'
)
LIBRARIES = (nn, optim, lr_scheduler, callbacks)  # whose classes have short names
VALUE = re.compile(r"(?:Given|Got) value: (.*?)(?:\. Got value: .*)?$", re.MULTILINE)  # the innermost comes first
TYPE = re.compile(r"Expected an? (?=<|typing)")
NO_CLASS = re.compile(r"^Expected a dot import path string: (?![\w.]*\b[A-Z]\w*$)")  # the value was hardly meant as one
KIND = re.compile(r"<class '(?:[\w.]*\.)?(\w+)'>|typing\.Literal(?=\[)")
# What says that a file system, and not the code, is the problem.
OF_THE_SYSTEM = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR, errno.EISDIR,
    errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO,
)  # fmt: skip
SHORTENED = (ValueError, MisconfigurationException, ImportError, OSError)  # what a constructor says of its arguments


# What the parser refuses


def explain(message: str, parser: Any) -> str:
    """Return one line for what jsonargparse refuses: where it is, what is wrong, and the nearest valid name.

    Args:
        message: What jsonargparse says.
        parser: The parser, whose `argv` it has parsed.
    """
    if message.startswith("unrecognized arguments: "):
        return _explain_flag(message.split()[2], parser)
    if "expected one argument" in message:
        flag = re.findall(r"-[-\w.]+", message)[-1]
        return f"{flag}: no value given; write {flag} VALUE, or {flag}=VALUE if it begins with a dash"
    if message.startswith("the following arguments are required: "):
        missing = message.partition(": ")[2].replace(",", " and")
        return f"{missing}: not set; give --config FILE, such as --config configs/mine.yaml"

    keys = re.findall(r'Parser key "([^"]+)"', message)
    classes = re.findall(r"Problem with given class_path '([^']+)'", message)
    key, text = _explain_leaf(".".join(keys), _find_leaves(message), classes, parser)
    if text.startswith("is not valid"):  # jsonargparse names the value elsewhere
        text = f"{re.findall(VALUE, message)[0]} {text}"
    place = _find_place(key, parser.argv)
    return ": ".join(part for part in (place, key, text) if part)


def _find_leaves(message: str) -> list[str]:
    """Return the innermost lines of a message, without what frames them."""
    leaves: list[str] = []
    for line in message.splitlines():
        text = FRAME.sub("", line.strip().removeprefix("- ")).partition(". Got value: ")[0].strip()
        if text and not text.startswith(OUTER) and text != "Expected a <class 'NoneType'>":
            leaves.append(text)
    return leaves


def _explain_leaf(key: str, leaves: list[str], classes: list[str], parser: Any) -> tuple[str, str]:
    """Return the key and what is wrong with it."""
    kinds = [KIND.sub(r"\1", TYPE.sub("", line)) for line in leaves if TYPE.match(line)]
    other = [line for line in leaves if not TYPE.match(line) and not (kinds and NO_CLASS.search(line))]
    leaf = other[0] if other else leaves[0] if leaves else ""
    if found := re.search(r"Option '([^']+)' is not accepted", leaf):
        if not classes:
            return found[1], f"there is no such key{nearest(found[1], _settings(parser))}"
        names = ArgumentParser().add_class_arguments(imported(classes[-1]), fail_untyped=False)
        hint = nearest(found[1], names, f"; it takes {', '.join(names)}")
        return f"{key}.{found[1]}", f"{classes[-1].rpartition('.')[2]} has no '{found[1]}'{hint}"
    if found := re.search(r"Group '([^']*)' does not accept option '([^']+)'", leaf):
        name = f"{found[1]}.{found[2]}"
        return name, f"there is no such key{nearest(name, _settings(parser))}"
    if found := re.search(r"arguments are required: (\w+)", leaf):
        return f"{key}.{found[1]}", "not set, and it has no default"
    if found := re.search(r"Importing '([^']+)' is not allowed, denied by the '([^']+)' entry", leaf):
        return key, explain_denied(found[1], everything=found[2] == "*")
    if found := re.search(r"Expected a dot import path string: (.*)", leaf):
        libraries = (name for module in LIBRARIES for name in dir(module) if name[0].isupper())
        known = [*find_classes(package()), *libraries]
        return key, f"there is no class '{found[1]}'{nearest(found[1], known, '; give its full path')}"
    if found := re.search(r"module '([^']+)' has no attribute '([^']+)'", leaf):
        return key, f"{found[1]} has no '{found[2]}'{nearest(found[2], dir(sys.modules[found[1]]))}"
    if found := re.search(r"File does not exist: '([^']+)'", leaf):
        name = os.path.relpath(found[1])
        return name, f"no such file{nearest(name, map(str, Path('configs').rglob('*.yaml')))}"
    if not other and kinds:
        return key, f"is not valid; it must be {' or '.join(dict.fromkeys(kinds))}".replace("] or [", ", ")
    if leaf.startswith("Not a valid subclass of "):
        return key, f"it must be a class or the settings of {leaf.rpartition(' ')[2]}"
    return key, leaf[:300]


def _explain_flag(word: str, parser: Any) -> str:
    """Return what to do about a word of the command line that is no flag of the parser."""
    flag = word.partition("=")[0]
    if flag.startswith("--"):
        section = nearest(flag[2:].partition(".")[0], _settings(parser))
        return f"{flag}: there is no such setting{nearest(flag[2:], _settings(parser), section)}"
    if word.endswith((".yaml", ".yml")):
        return f"{word}: a config needs --config; write --config {word}"
    return f"{word}: it follows no flag that takes a value; remove it, or write it as --{word.lstrip('-')}"


def _settings(parser: ArgumentParser) -> list[str]:
    return [action.dest for action in parser._actions]


def _find_place(key: str, argv: list[str]) -> str:
    """Return the flag or the file and line that sets a key, the last one if several do; empty if it is not known."""
    for flag, value in reversed(flags_of(argv)):
        if flag.lstrip("-").rstrip("+") == key:
            return ""  # the key is the flag
        if flag in CONFIG and value and os.path.isfile(value):
            for file in (Path(value), *reversed(find_bases(Path(value)))):
                line = find_line(file, key)
                if line is not None:
                    return f"{file}:{line}"
    return ""


# What ends a command


@contextmanager
def saving_traceback(run: RunFolder | None) -> Iterator[None]:
    """Keep the traceback of what ends a run in its folder, and note on the exception where it is."""
    try:
        yield
    except Exception as error:
        save_traceback(error, ROOT / "traceback.txt" if run is None else run.traceback)
        raise


def save_traceback(error: Exception, file: Path) -> None:
    """Write the traceback of an exception, and note on it where that is."""
    try:
        write_text(file, "".join(traceback.format_exception(error)))
        error.add_note(f"traceback in {file}")
    except UserError:  # a full disk: the exception itself is what must be seen
        error.add_note("traceback not saved")


def describe_error(error: BaseException) -> str | None:
    """Return the line to print for what a person can put right; None for a bug, which is shown with its traceback.

    Args:
        error: What ended the command.
    """
    chain = list(_causes(error))
    mistake = next((one for one in chain if isinstance(one, UserError)), None)
    if mistake is not None:
        return str(mistake)
    innermost = chain[-1] if _noted(error, "building") else error
    line = _explain_runtime(error, innermost)
    if line is None:
        return None
    key = _noted(error, "building")
    where = _noted(error, "traceback in")
    return f"{key + ': ' if key else ''}{line}{f'; its traceback is in {where}' if where else ''}"


def _explain_runtime(error: BaseException, innermost: BaseException) -> str | None:
    advice = _explain_out_of_memory(error)
    if advice is not None:
        return advice
    if isinstance(error, MisconfigurationException):  # Lightning's word for settings that do not go together
        return first_line(error)
    if isinstance(error, OSError) and error.errno in OF_THE_SYSTEM:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else str(error.strerror)
    if _noted(error, "building") and isinstance(innermost, SHORTENED):
        return first_line(innermost)
    return None


def _explain_out_of_memory(error: BaseException) -> str | None:
    """Return peak memory and the flags that are most likely to help; None for any other exception."""
    if not is_out_of_memory(error):
        return None
    peak = f"peak {peak_host_gib():.2f} GiB of the host's memory"
    if torch.cuda.is_available():
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory / GIB
        peak = f"peak {torch.cuda.max_memory_allocated() / GIB:.2f} of {total:.2f} GiB of the GPU"
    return (
        f"out of memory ({peak}): try half of --data.batch_size with twice --trainer.accumulate_grad_batches, or "
        "--trainer.precision bf16-mixed"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _noted(error: BaseException, start: str) -> str:
    notes = [note for note in getattr(error, "__notes__", []) if note.startswith(f"{start} ")]
    return notes[0].removeprefix(f"{start} ") if notes else ""
