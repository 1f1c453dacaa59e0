"""One input of the command line, run in this process: how did it end?

    ending = run_input(["fit", "--config", "mine.yaml"], tmp_path)
    assert ending.fine, ending

An input ends well if the command succeeds, or exits with 2 after exactly one line that begins with ``error:``.
"""

import contextlib
import io
import os
import resource
import shlex
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from unittest import mock

import torch
from jsonargparse import ArgumentParser

from litlab.cli.command import run_command
from litlab.cli.experiment_cli import ExperimentCLI
from litlab.cli.hints import parser_of
from litlab.testing import WithoutRunning

MEMORY = 3 * 2**30  # bytes that one input may take: nothing here needs more, and more would end the tests themselves
LEAKS = ("<class '", "NoneType", "Namespace(", "NestedArg(", "Parser key", "Got value", "Does not validate", "not '?'")


@dataclass(frozen=True)
class Ending:
    """How one input ended.

    Args:
        kind: ``ok``, or one ``line``; everything else is a fault: a ``traceback``, a ``hang``, another exit code or
            number of lines (``noise``), or a line in the words of a library (``leak``).
        arguments: The command line, from the verb on.
        text: The line, or what was printed.
    """

    kind: Literal["ok", "line", "traceback", "hang", "noise", "leak"]
    arguments: list[str]
    text: str

    @property
    def fine(self) -> bool:
        """Whether it ended as it should."""
        return self.kind in ("ok", "line")

    def __str__(self) -> str:
        return f"{self.kind}: {shlex.join(self.arguments)}\n    {self.text.strip()[-3000:]}"


class Hang(BaseException):
    """The time is up. No ``except Exception`` of a library may take it for an error of its own."""


class _Building(WithoutRunning):
    """Parses and builds."""


def verb_parser(verb: str) -> ArgumentParser:
    """The parser of a verb, with its keys and types."""
    with mock.patch.object(sys, "argv", ["auks", verb]), mock.patch.object(_Building, "parse_arguments", _stop):
        try:
            _Building()
        except _Parsed as parsed:
            return parser_of(parsed.args[0], verb)
    raise AssertionError("nothing was parsed")


class _Parsed(Exception):
    """Carries a parser out of the command line."""


def _stop(_: ExperimentCLI, parser: ArgumentParser, __: object) -> None:
    raise _Parsed(parser)


def run_input(arguments: list[str], folder: Path, seconds: float = 60.0, whole: bool = False) -> Ending:
    """Runs one command line.

    Args:
        arguments: The command line, from the verb on.
        folder: The working directory.
        seconds: After how long it is called a hang.
        whole: Whether the command is run to its end; else ``fit`` and its like stop when all is built.
    """
    out, err = io.StringIO(), io.StringIO()
    command = contextlib.nullcontext() if whole else mock.patch("litlab.cli.start.ExperimentCLI", _Building)
    argv = mock.patch.object(sys, "argv", ["auks", *arguments])  # restored, as the command changes it
    with argv, command, _as_before(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with _limits(seconds):
                code = run_command("auks")
        except SystemExit as exit_:
            code = exit_.code or 0
        except Hang:
            return Ending("hang", arguments, traceback.format_exc())
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Ending("traceback", arguments, traceback.format_exc())
    return Ending(*_judged(code, err.getvalue(), arguments))


def _judged(code: object, printed: str, arguments: list[str]) -> tuple[str, list[str], str]:
    errors = [line for line in printed.splitlines() if line.startswith("error:")]
    if "Traceback (most recent" in printed:
        return "traceback", arguments, printed
    if code == 0 and not errors:
        return "ok", arguments, ""
    if code != 2 or len(errors) != 1 or printed.splitlines()[-1] != errors[0]:
        return "noise", arguments, f"exit code {code}: {printed}"
    if any(word in errors[0] for word in LEAKS) or len(errors[0]) > 1000:
        return "leak", arguments, errors[0]
    return "line", arguments, errors[0]


@contextlib.contextmanager
def _as_before(folder: Path) -> Iterator[None]:
    """Takes back what a command changes in its process."""
    environment, before = dict(os.environ), Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")


@contextlib.contextmanager
def _limits(seconds: float) -> Iterator[None]:
    """Ends what takes too long or too much memory. The alarm may be another one's, such as pytest-timeout's."""

    def ring(*_: object) -> None:
        raise Hang

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    rest, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if (status := Path("/proc/self/statm")).exists():
        in_use = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if rest:
            signal.setitimer(signal.ITIMER_REAL, max(0.1, rest - (time.monotonic() - began)))
