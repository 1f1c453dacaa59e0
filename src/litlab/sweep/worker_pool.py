"""The workers of one sweep command: started, shared out over cores and devices, replaced when killed, stopped."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from litlab.sweep.spec import SweepSpec
from litlab.sweep.trial_launcher import LOST
from litlab.util.team import package

REPLACEMENTS = 10  # of killed workers, for one command


@dataclass
class WorkerPool:
    """Worker processes.

    Args:
        spec: The sweep.
        workers: How many.
        until: Time (seconds since the epoch) from which on no trial is started; None for no limit.
    """

    spec: SweepSpec
    workers: int
    until: float | None
    failed: int = 0  # the first exit code that was neither success nor a stop
    _running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _begin: bytes = b""
    _replaced: int = 0
    _stopping: bool = False

    def start(self) -> None:
        """Starts them all: they import what they need, the first checks the sweep's values, and wait for `begin`."""
        for number in range(self.workers):
            self._start(number, check=number == 0)

    def checked(self, seconds: float) -> dict[str, Any] | None:
        """What the check found; None if it takes longer than a time.

        Args:
            seconds: The time.

        Raises:
            SystemExit: If the first worker has ended instead; it has said why.
        """
        stdout = self._running[0].stdout
        assert stdout is not None
        if not select.select([stdout], [], [], seconds)[0]:
            return None
        line = stdout.readline()
        if not line:
            code = self._running.pop(0).wait()
            raise SystemExit(code if code > 0 else 1)
        return json.loads(line)

    def begin(self, blocks: dict[str, Any]) -> None:
        """Lets the workers begin.

        Args:
            blocks: What the check found.
        """
        self._begin = json.dumps(blocks).encode() + b"\n"
        for process in self._running.values():
            self._tell(process)

    def look_after(self) -> bool:
        """Replaces workers that were killed; returns whether any worker runs."""
        for number, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[number]
            killed = code < 0 or code == LOST
            if killed and not self._stopping and self._replaced < REPLACEMENTS:
                self._replaced += 1
                print(f"worker {number} was killed: another takes its place", file=sys.stderr)
                self._start(number, check=False)
                self._tell(self._running[number])
            elif code not in (0, 128 + signal.SIGTERM):
                self.failed = self.failed or (code if code > 0 else 1)
                self.stop()
        return bool(self._running)

    def stop(self) -> None:
        """Tells the workers to stop: their fits save their state, their trials are queued again."""
        self._stopping = True
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the workers at once; their fork servers, which notice, end the fits."""
        self._stopping = True
        for process in self._running.values():
            process.kill()

    def _start(self, number: int, check: bool) -> None:
        job = {
            "package": package(),
            "file": str(self.spec.file),
            "trials": self.spec.trials,
            "arguments": self.spec.arguments,
            "until": self.until,
            "check": check,
        }
        self._running[number] = subprocess.Popen(
            [sys.executable, "-m", "litlab.sweep.worker", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if check else subprocess.DEVNULL,
            env={**os.environ, **share(number, self.workers)},
            start_new_session=True,  # Ctrl-C is this command's; it tells them
        )

    def _tell(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed, and will be replaced
            process.stdin.write(self._begin)
            process.stdin.flush()


def devices() -> list[str]:
    """The CUDA devices that this command may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
    return [str(number) for number, line in enumerate(listed.splitlines()) if line.startswith("GPU ")]


def share(number: int, workers: int) -> dict[str, str]:
    """The environment of a worker: its devices and its part of the cores.

    Args:
        number: Which worker, from 0.
        workers: How many there are.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores // workers)))}
    if found := devices():
        each = max(1, len(found) // workers)
        first = number * each % len(found)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(found[first : first + each])
    return environment
