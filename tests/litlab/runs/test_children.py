"""Processes that a command starts and waits for."""

import os
import signal
import time
from threading import Thread

from litlab.runs.children import run_child

# What a child does that ends well in spite of a signal
STATEMENT = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
open("ready", "w").close()
time.sleep(60)
"""


def test_a_signal_counts_whatever_the_child_makes_of_it(tmp_path, monkeypatch):
    def stop():
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.chdir(tmp_path)
    ready = tmp_path / "ready"
    Thread(target=stop, daemon=True).start()
    assert run_child("timeit", "-n1", "-r1", STATEMENT) == 128 + signal.SIGTERM
