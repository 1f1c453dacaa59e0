"""Processes of Python that start at once: launcher of one that has imported torch and Lightning; not a test itself.

Importing both takes some ten seconds of a core, and a test of two ranks that are stopped and go on starts four
processes. What is forked is like a new process otherwise: arguments, environment, working directory, exit code.
"""

import atexit
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
import weakref
from importlib import import_module
from multiprocessing import forkserver, get_context, set_start_method
from pathlib import Path
from subprocess import TimeoutExpired
from typing import BinaryIO
from unittest.mock import patch

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["tests.preload"])

FORKED = "TEST_CHILDREN_ARE_FORKED"  # variable of processes whose own children start like them, not in seconds
variables_at_start: dict[str, str] = {}  # those of the session, before any test
_one_at_a_time = threading.Lock()  # some tests start several processes from threads, and these change the variables


def start_fork_server() -> None:
    """Start it unless it runs, without the variables that a test has set for itself: later forks would have them."""
    if FORKED in os.environ:
        return
    with patch.dict(os.environ, variables_at_start or dict(os.environ), clear=True):
        forkserver.ensure_running()


class Python:
    """``python ARGUMENTS``, with the methods of `subprocess.Popen` that tests use.

    Args:
        arguments: ``-m MODULE ...`` or ``FILE ...``.
        cwd: Its working directory.
        environment: Its variables besides those of the test.
        merge: Whether what it prints to stderr goes to stdout.
    """

    def __init__(
        self,
        *arguments: object,
        cwd: Path,
        environment: dict[str, object] | None = None,
        merge: bool = False,
    ) -> None:
        defaults = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}
        own = {name: str(value) for name, value in (environment or {}).items()}
        self._printed = [_temporary_file(self) for _ in range(1 if merge else 2)]
        files = [os.devnull, *map(str, self._printed)]
        with _one_at_a_time:
            variables = {**os.environ, **defaults, **own}
            start_fork_server()
            server = forkserver._forkserver._forkserver_address
            self._process = FORKS.Process(target=_become, args=([*map(str, arguments)], cwd, variables, files, server))
            self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float = 240) -> int:
        """Its exit code, below 0 for one that was killed."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            said = "\n".join(self.printed())
            raise AssertionError(f"process {self.pid} has not ended in {timeout} seconds, and has printed:\n{said}")
        return self._process.exitcode

    def communicate(self, timeout: float = 240) -> tuple[str, str]:
        """What it printed, once it has ended."""
        self.wait(timeout)
        out, *err = self.printed()
        return out, "".join(err)

    def printed(self) -> list[str]:
        """What it has printed up to now."""
        return [path.read_text(errors="replace") for path in self._printed]

    def send_signal(self, signum: int) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Child(Python):
    """Takes the place of `subprocess.Popen` in `litlab.runs.children`; what it prints is shown when it ends."""

    def __init__(
        self, words: list[str], start_new_session: bool, stdout: BinaryIO | None = None, stderr: int = 0
    ) -> None:
        assert start_new_session
        super().__init__(*words[1:], cwd=Path.cwd(), merge=stdout is not None)
        self._log = stdout

    def wait(self, timeout: float | None = 240) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired("child", timeout or 0)
        out, *err = self.printed()
        if self._log is not None:
            self._log.write(out.encode())
        else:
            sys.stdout.write(out)
            sys.stderr.write("".join(err))
        return self.returncode


# Forked from a process that has imported `tests` of this tree. Rewriting asserts would take 12 seconds.
PYTEST = """
import sys
import pytest
for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
    del sys.modules[name]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--assert=plain", "--basetemp=temporary", *sys.argv[1:]]))
"""


def start_pytest(root: Path, *arguments: str, path: object = "src") -> Python:
    """Run tests of another tree; `path` is where its packages are."""
    script = root / "run_tests.py"
    script.write_text(PYTEST)
    return Python(script, *arguments, cwd=root, environment={"PYTHONPATH": root / str(path)}, merge=True)


def ranks(count: int) -> list[dict[str, object]]:
    """The variables by which each of some processes knows its rank, as torchrun would set them."""
    if count == 1:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NODE_RANK": 0, "WORLD_SIZE": count}
    return [{**shared, "LOCAL_RANK": rank} for rank in range(count)]


def _temporary_file(owner: object) -> Path:
    """An empty file that is removed with the object it belongs to."""
    descriptor, name = tempfile.mkstemp()
    os.close(descriptor)
    weakref.finalize(owner, Path(name).unlink)
    return Path(name)


def _become(arguments: list[str], cwd: Path, variables: dict[str, str], files: list[str], server: str) -> None:
    set_start_method(None, force=True)  # the workers of loaders start as they do elsewhere
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(cwd)
    for descriptor, name in zip(range(3), [*files, files[-1]], strict=False):
        os.dup2(os.open(name, os.O_RDWR | os.O_APPEND), descriptor)
    if FORKED in variables:
        forkserver._forkserver._forkserver_address = server  # pyright: ignore[reportAttributeAccessIssue]
        forkserver._forkserver.ensure_running = lambda: None
        import_module("litlab.runs.children").Popen = Child
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path.insert(0, "")
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()
