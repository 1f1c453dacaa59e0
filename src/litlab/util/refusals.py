"""One line for what a library says of the user's settings. What litlab or the team gets wrong keeps its traceback.

Libraries raise whatever exception they like. Where it was raised shows which kind it is: a constructor of torch or
Lightning that was given a value from the config refuses that value; an error in lines of one's own is a bug.
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

LITLAB = Path(__file__).parents[1]
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")} | {"<frozen"})
# What torch's C++ raises for a size or a type, from the line that calls it: in a constructor it is about the settings.
ABOUT_VALUES = (
    ValueError, RuntimeError, MemoryError, OverflowError, OSError, ModuleNotFoundError, MisconfigurationException,
)  # fmt: skip
PARSER = r"/(jsonargparse/|lightning/pytorch/cli\.py)"
Frame = tuple[CodeType, dict[str, Any]]


@contextmanager
def refusals(key: str) -> Iterator[None]:
    """Turn what a library says of a value into a `UserError`, while something is built.

    Args:
        key: The YAML key of what is built.

    Raises:
        UserError: For every exception that is not a bug.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if _is_bug(error, frames_of(error)[2:]):  # without this function and the one that builds
            raise
        raise UserError(f"{key}: {reason(error)}") from error


@contextmanager
def named_classes(config: dict[str, Any]) -> Iterator[None]:
    """Turn what a class of the config says of its arguments into a `UserError` that names its key.

    jsonargparse hides what a constructor raises in the errors of the types that it tried: the constructor's own
    exception is looked for, and raised where it is a bug.

    Args:
        config: What is being built, as plain dicts and lists.

    Raises:
        UserError: For every exception that is not a bug.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = next((found for found in _hidden(error) if not _of_parser(found)), error)
        frames = frames_of(cause)
        parser = [number for number, (code, _) in enumerate(frames) if re.search(PARSER, code.co_filename)]
        frames = frames[parser[-1] + 1 :] if parser else []  # from the constructor on
        if isinstance(cause, UserError) or _is_bug(cause, frames):
            raise cause from None
        key, name, settings = _found(config, frames)
        text = _download(name, settings, cause) or reason(cause)
        place = f"{key}: {name}" if name and not isinstance(cause, urllib.error.URLError) else key
        raise UserError(f"{place}: {text}") from cause


def reason(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    if isinstance(error, ModuleNotFoundError):
        wanted = re.search(r"pip install (?:-U )?'?([\w.\[\]<>=!~,-]+)", str(error))
        package = wanted[1] if wanted else (error.name or "").partition(".")[0]
        if package:
            return f"a package is missing; pip install '{package}'"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError) and not error.args:
        return "there is not enough memory for it"
    is_key = isinstance(error, KeyError) and error.args  # its str() is a repr
    text = first_line(Exception(error.args[0]) if is_key else error).rstrip(".")
    with_name = isinstance(error, (LookupError, AttributeError, ImportError, ArithmeticError))
    return f"{type(error).__name__}: {text}" if with_name else text


def frames_of(error: BaseException) -> list[Frame]:
    """Return code and variables of the traceback, from the outermost call to the line that raised."""
    frames: list[Frame] = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append((traceback.tb_frame.f_code, traceback.tb_frame.f_locals))
        traceback = traceback.tb_next
    return frames


def in_library(code: CodeType) -> bool:
    """Return whether code is Python's or a library's: neither the team's nor litlab's, wherever these are installed."""
    own = (str(LITLAB), str(package_folder()))
    return code.co_filename.startswith(LIBRARIES) and not code.co_filename.startswith(own)


def _is_bug(error: BaseException, frames: list[Frame]) -> bool:
    return bool(frames) and not isinstance(error, ABOUT_VALUES) and not in_library(frames[-1][0])


def _download(builder: str, settings: dict[str, Any], error: BaseException) -> str | None:
    """Return what to do where pre-trained weights of torchvision can't be downloaded; None for any other error."""
    weights = settings.get("weights")
    if weights is None or not isinstance(error, (urllib.error.URLError, http.client.HTTPException, ConnectionError)):
        return None
    from torch.hub import get_dir
    from torchvision.models import get_model_weights

    url = get_model_weights(builder)[str(weights).rpartition(".")[2]].url
    path = Path(get_dir()) / "checkpoints" / Path(url).name
    why = getattr(error, "reason", error)
    return (
        f"the weights {weights} can't be downloaded ({first_line(why) if isinstance(why, BaseException) else why}); "
        f"save {url} as {path}, or leave weights out"
    )


def _hidden(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and where it is one of jsonargparse its cause and what each type of a union has raised."""
    yield error
    if _of_parser(error):
        if error.__cause__ is not None:
            yield from _hidden(error.__cause__)
        for value in frames_of(error)[-1][1].values():  # only the first of a union's errors becomes the cause
            if isinstance(value, list) and value and all(isinstance(item, Exception) for item in value):
                for item in value:
                    yield from _hidden(item)


def _of_parser(error: BaseException) -> bool:
    return "/jsonargparse/" in frames_of(error)[-1][0].co_filename


def _found(config: Any, frames: list[Frame]) -> tuple[str, str, dict[str, Any]]:
    """Return key, name and settings of the class or function of the config that the outermost of some frames is of."""
    classes = list(class_blocks(config))
    for code, variables in frames:
        name = type(variables.get("self")).__name__ if code.co_name == "__init__" else code.co_name
        same = [(key, settings) for key, path, settings in classes if path.rpartition(".")[2] == name]
        if same:  # of two entries with one class, the one whose arguments are those of the call
            key, settings = min(same, key=lambda found: sum(variables.get(k, v) != v for k, v in found[1].items()))
            return key, name, settings
    return "config", "", {}
