"""One line for what a library says of the user's settings; what the project's own code gets wrong stays a traceback.

Libraries raise whatever exception they like. Where it was raised tells which kind it is: a constructor of torch or
Lightning that was given a value from the config refuses that value, an error in the project's own lines is a bug.
"""

import http.client
import re
import sysconfig
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException

from litlab.errors import UserError, first_line
from litlab.util.class_blocks import class_blocks
from litlab.util.team import package_folder

OURS = Path(__file__).parents[1]  # litlab
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")} | {"<frozen"})
# What torch's C++ raises for a size or a type, from the line that calls it: in a constructor it is about the settings.
ABOUT_VALUES = (
    ValueError, RuntimeError, MemoryError, OverflowError, OSError, ModuleNotFoundError, MisconfigurationException,
)  # fmt: skip
PARSER = r"/(jsonargparse/|lightning/pytorch/cli\.py)"


@contextmanager
def refusals(key: str) -> Iterator[None]:
    """Turns what a library says of a value into a `UserError`, while something is built.

    Args:
        key: The YAML key of what is built.

    Raises:
        UserError: For every exception that is not a bug of the project.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        frames = list(frames_of(error))[2:]  # without this function and the one that builds
        if frames and not isinstance(error, ABOUT_VALUES) and not in_library(frames[-1][0]):
            raise
        raise UserError(f"{key}: {reason(error)}") from error


@contextmanager
def named_classes(config: dict[str, Any]) -> Iterator[None]:
    """Turns what a class of the config says of its arguments into a `UserError` that names its key.

    jsonargparse hides what a constructor raises in the errors of the types that it tried: the constructor's own
    exception is looked for, and is what goes on where it is a bug.

    Args:
        config: What is being built, as plain dicts and lists.

    Raises:
        UserError: For every exception that is not a bug of the project.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = next((found for found in _hidden(error) if not _of_parser(found)), error)
        if isinstance(cause, UserError):
            raise cause from None
        frames = list(frames_of(cause))
        parser = [number for number, (code, _) in enumerate(frames) if re.search(PARSER, code.co_filename)]
        frames = frames[parser[-1] + 1 :] if parser else []  # from the constructor on
        if frames and not isinstance(cause, ABOUT_VALUES) and not in_library(frames[-1][0]):
            raise cause from None
        key, name, settings = _found(config, frames)
        text = _download(name, settings, cause) or reason(cause)
        place = f"{key}: {name}" if name and not isinstance(cause, urllib.error.URLError) else key
        raise UserError(f"{place}: {text}") from cause


def reason(error: BaseException) -> str:
    """What an exception says, in one line that ends with a full stop."""
    if isinstance(error, ModuleNotFoundError):
        wanted = re.search(r"pip install (?:-U )?'?([\w.\[\]<>=!~,-]+)", str(error))
        package = wanted[1] if wanted else (error.name or "").partition(".")[0]
        if package:
            return f"a package is missing: pip install '{package}'."
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}."
    text = first_line(error).rstrip(".")
    if isinstance(error, KeyError) and error.args:  # its str() is a repr
        text = first_line(Exception(error.args[0])).rstrip(".")
    if isinstance(error, MemoryError) and text == "MemoryError":
        text = "there is not enough memory for it"
    if isinstance(error, (LookupError, AttributeError, ImportError, ArithmeticError)):
        text = f"{type(error).__name__}: {text}"
    return f"{text}."


def _download(builder: str, settings: dict[str, Any], error: BaseException) -> str | None:
    """What to do where pre-trained weights of torchvision can't be downloaded; None for any other error."""
    weights = settings.get("weights")
    if weights is None or not isinstance(error, (urllib.error.URLError, http.client.HTTPException, ConnectionError)):
        return None
    from torch.hub import get_dir
    from torchvision.models import get_model_weights

    url = get_model_weights(builder)[str(weights).rpartition(".")[2]].url
    path = Path(get_dir()) / "checkpoints" / Path(url).name
    why = getattr(error, "reason", error)
    return (
        f"the weights {weights} can't be downloaded ({first_line(why) if isinstance(why, BaseException) else why}): "
        f"save {url} as {path}, or leave weights out."
    )


def _hidden(error: BaseException) -> Iterator[BaseException]:
    """An exception, and where it is one of jsonargparse its cause, and what each type of a union has raised."""
    yield error
    if _of_parser(error):
        if error.__cause__ is not None:
            yield from _hidden(error.__cause__)
        for value in list(frames_of(error))[-1][1].values():  # only the first of a union's errors becomes the cause
            if isinstance(value, list) and value and all(isinstance(item, Exception) for item in value):
                for item in value:
                    yield from _hidden(item)


def _of_parser(error: BaseException) -> bool:
    return "/jsonargparse/" in list(frames_of(error))[-1][0].co_filename


def _found(config: Any, frames: list[tuple[CodeType, dict[str, Any]]]) -> tuple[str, str, dict[str, Any]]:
    """Key, name and settings of the class or function of the config that the outermost of some frames belongs to."""
    classes = list(class_blocks(config))
    for code, variables in frames:
        name = type(variables.get("self")).__name__ if code.co_name == "__init__" else code.co_name
        same = [(key, settings) for key, path, settings in classes if path.rpartition(".")[2] == name]
        # Of two entries with one class, it is the one whose arguments are those of the call.
        same.sort(key=lambda entry: sum(variables.get(key, value) != value for key, value in entry[1].items()))
        if same:
            key, settings = same[0]
            return key, name, settings
    return "config", "", {}


def frames_of(error: BaseException) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """Code and variables of the traceback, from the outermost call to the line that raised."""
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_frame.f_locals
        traceback = traceback.tb_next


def in_library(code: CodeType) -> bool:
    """Whether code is Python's or a library's: neither the team's nor litlab's, wherever these are installed."""
    return code.co_filename.startswith(LIBRARIES) and not code.co_filename.startswith(
        (str(OURS), str(package_folder()))
    )
