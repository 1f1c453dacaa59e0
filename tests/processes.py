"""Processes of Python that start at once: forks of one that has imported torch and Lightning; not a
    test itself.

Importing both takes some ten seconds of a core, and a test of two ranks that are stopped and go on
starts four processes. One server forks for all processes of a session. What is forked is like a new
process otherwise: arguments, environment, working directory, exit code.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, BinaryIO

SERVER = "TEST_FORK_SERVER"  # variable: the server's socket
# What the server answers: an id, and when that process has ended its exit code
NUMBER = struct.Struct("i")

_kept: list[object] = []  # by the process that has started the server, as long as it lives
_one_at_a_time = threading.Lock()  # some tests start several processes from threads


def start_fork_server() -> None:
    """Start it, unless it runs; it ends with this process."""
    if SERVER in os.environ:
        return
    folder = tempfile.TemporaryDirectory()
    address = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        server = subprocess.Popen(
            [sys.executable, "-W", "ignore:This process", "-m", __name__, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parents[1],
        )
    _kept.extend([folder, server])
    os.environ[SERVER] = address


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
            start_fork_server()
        variables = {**os.environ, **defaults, **own}
        self._server = socket.socket(socket.AF_UNIX)
        weakref.finalize(self, self._server.close)
        self._server.connect(os.environ[SERVER])
        self._server.sendall(
            json.dumps([[*map(str, arguments)], str(cwd), variables, files]).encode()
        )
        self._server.shutdown(socket.SHUT_WR)
        self.pid = self._receive()
        self._code: int | None = None

    def _receive(self) -> int:
        return NUMBER.unpack(self._server.recv(NUMBER.size))[0]

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self, timeout: float | None = 0) -> int | None:
        if self._code is None and select.select([self._server], [], [], timeout)[0]:
            self._code = self._receive()
        return self._code

    def wait(self, timeout: float = 240) -> int:
        """Its exit code, below 0 for one that was killed."""
        code = self.poll(timeout)
        assert code is not None, f"not ended in {timeout} seconds: {self.printed()}"
        return code

    def communicate(self, timeout: float = 240) -> tuple[str, str]:
        """What it printed, once it has ended."""
        self.wait(timeout)
        out, *err = self.printed()
        return out, "".join(err)

    def printed(self) -> list[str]:
        """What it has printed up to now."""
        return [path.read_text(errors="replace") for path in self._printed]

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Child(Python):
    """Takes the place of `subprocess.Popen` in `litlab.runs.children`; what it prints is shown when
    it ends.
    """

    def __init__(
        self,
        words: list[str],
        start_new_session: bool,
        stdout: BinaryIO | None = None,
        stderr: int = 0,
    ) -> None:
        assert start_new_session
        super().__init__(*words[1:], cwd=Path.cwd(), merge=stdout is not None)
        self._log = stdout

    def wait(self, timeout: float | None = 240) -> int:
        code = self.poll(timeout)
        if code is None:
            raise TimeoutExpired("child", timeout or 0)
        out, *err = self.printed()
        if self._log is not None:
            self._log.write(out.encode())
        else:
            sys.stdout.write(out)
            sys.stderr.write("".join(err))
        return code


# Forked from a process that has imported `tests` of this tree. Rewriting asserts would take 12
# seconds.
PYTEST = f"""
import os
import sys
import pytest
for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
    del sys.modules[name]
del os.environ["{SERVER}"]
options = ["-q", "-p", "no:cacheprovider", "--assert=plain", "--basetemp=temporary"]
sys.exit(pytest.main([*options, *sys.argv[1:]]))
"""


def start_pytest(root: Path, *arguments: str, path: object = "src") -> Python:
    """Run tests of another tree; `path` is where its packages are."""
    script = root / "run_tests.py"
    script.write_text(PYTEST)
    return Python(
        script, *arguments, cwd=root, environment={"PYTHONPATH": root / str(path)}, merge=True
    )


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


# The server


def serve(listener: socket.socket) -> list[Any]:
    """Fork whenever somebody asks for it; return in a fork, with what it is to become."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in ("litlab.cli.fit", "optuna", "pandas", "sklearn.tree", "torch.utils.tensorboard"):
        import_module(name)  # what the processes would import themselves, each in a second or more
    gc.freeze()  # so that none looks for garbage among all of it
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:  # whoever has started it has ended
            os._exit(0)
        asked, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with asked, asked.makefile() as stream:
                request = json.load(stream)
                pid = os.fork()
                if pid == 0:
                    return request
                asked.sendall(NUMBER.pack(pid))
                _, status = os.waitpid(pid, 0)
                with suppress(BrokenPipeError):  # whoever asked has been killed
                    asked.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os._exit(0)
        asked.close()


def become(arguments: list[str], cwd: str, variables: dict[str, str], files: list[str]) -> None:
    os.setsid()
    # The tests may run under nohup, or in the background of a script
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(cwd)
    for descriptor, name in zip(range(3), [*files, files[-1]], strict=False):
        os.dup2(os.open(name, os.O_RDWR | os.O_APPEND), descriptor)
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    code: Any = 0
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path.insert(0, "")
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:
        code = traceback.format_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    exit_codes.append(code or 0)


exit_codes: list[int] = []


def leave() -> None:
    """End a fork: taking everything down that was imported takes two seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_codes[0])


if __name__ == "__main__":
    atexit.register(leave)  # before all others, which therefore run before it
    become(*serve(socket.socket(fileno=int(sys.argv[1]))))
