"""A process that has imported everything a fit needs, and forks one fit after another.

Start-up costs a fit several seconds, most of them imports. The server pays them once; each fit is still a process of
its own, with its own memory and its own end. It runs as ``python -m litlab.sweep.server PACKAGE DESCRIPTOR``.
"""

import contextlib
import ctypes
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
import warnings

SECONDS_TO_SAVE = 30.0  # for a fit whose worker is gone
SECONDS_BETWEEN_LOOKS = 0.1
PR_SET_PDEATHSIG = 1


def main(package: str, descriptor: int) -> None:
    """Serves until the other end of the socket is closed.

    Requests and answers are lines of JSON. ``{"module", "arguments", "log", "environment"}`` runs a module as
    ``python -m`` does; the answers are ``{"pid"}`` and, when it has ended, ``{"exit"}``: its exit code, or minus the
    signal that killed it.

    Args:
        package: Name of the team's package.
        descriptor: Of a connected socket.
    """
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)  # its end is the worker's business
    worker = socket.socket(fileno=descriptor)
    from litlab.cli.start import quiet, register_classes
    from litlab.util.team import use_package

    use_package(package)

    quiet()
    register_classes()
    with worker.makefile("r") as requests:
        _send(worker, ready=True)
        for line in requests:
            request = json.loads(line)
            with warnings.catch_warnings():
                # Python 3.12 and later warn of any thread; the only ones here are OpenBLAS's, which survive a fork.
                warnings.simplefilter("ignore", DeprecationWarning)
                server = os.getpid()
                child = os.fork()
            if child == 0:
                _become(worker, request, server)
                runpy.run_module(request["module"], run_name="__main__", alter_sys=True)  # raises SystemExit
                sys.exit(0)
            _send(worker, pid=child)
            _send(worker, exit=_wait(worker, child))


def _become(worker: socket.socket, request: dict, server: int) -> None:
    """Makes the forked process one as ``python -m`` would have started it."""
    os.setsid()  # signals for the worker are not the fit's; those for the fit reach all its processes
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # a server that is killed could not end it
        if os.getppid() != server:
            os._exit(128 + signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.close(worker.detach())
    os.makedirs(os.path.dirname(request["log"]), exist_ok=True)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(request["environment"])
    sys.argv = ["", *request["arguments"]]


def _wait(worker: socket.socket, child: int) -> int:
    """Waits for a child; ends it where the worker is gone."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if select.select([worker], [], [], SECONDS_BETWEEN_LOOKS)[0] and not worker.recv(1, socket.MSG_PEEK):
            _end(child)
            sys.exit(1)


def _end(child: int) -> None:
    """Lets a fit save its state and go, or kills it."""
    deadline = time.monotonic() + SECONDS_TO_SAVE
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGTERM)
        while time.monotonic() < deadline:
            if os.waitpid(child, os.WNOHANG)[0]:
                return
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _send(worker: socket.socket, **message: object) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next look tells that it is gone
        worker.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
