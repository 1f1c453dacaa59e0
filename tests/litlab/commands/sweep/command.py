"""``python -m auks`` with a first fork server that is a fork of itself.

A fork server takes some eight seconds of a core to import torch and Lightning, which this process has imported already.
"""

import os
import signal
from itertools import pairwise
from multiprocessing import forkserver, util
from typing import Any

from litlab.cli import main

_start: Any = util.spawnv_passfds


def _fork(path: str, arguments: list[str], descriptors: list[int]) -> int:
    """Do what multiprocessing does to start a helper process; the first fork server is forked."""
    if not arguments[-1].startswith("from multiprocessing.forkserver import main"):
        return _start(path, arguments, descriptors)
    util.spawnv_passfds = _start  # a second one is started by one of several threads
    if pid := os.fork():
        return pid
    try:  # what exec does
        for low, high in pairwise(sorted([2, *descriptors, 4096])):
            os.closerange(low + 1, high)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        forkserver._forkserver.__init__()  # its lock is held
        exec(arguments[-1])
    finally:
        os._exit(0)


if __name__ == "__main__":
    util.spawnv_passfds = _fork
    main(package="auks")
