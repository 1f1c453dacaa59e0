"""End a run of several processes soon after one of them died, and say which."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import NoReturn

from lightning.pytorch import Trainer
from torch.distributed import DistError, Store  # pyright: ignore[reportPrivateImportUsage]

from litlab.checkpointing.internals import new_store
from litlab.errors import UserError
from litlab.runs.folder import STATUS_LOCK, RunFolder, read_json, write_json
from litlab.runs.provenance import now

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_END_BY_ITSELF = 5.0  # of a process, after another one has ended with an error that both may have
KEY = "lost"


class RankWatch:
    """The processes of a run: end this one when another rank is gone, which a collective may not notice.

    The first process of each host polls the ranks that it has started, and these check whether it is still there.
    Whichever finds one gone notifies the other hosts through the store of the process group. Ranks that were started by
    something else (torchrun, srun) are watched by that; here one can only say that the connection is lost. In a run of
    a single process it does nothing.
    """

    def __init__(self) -> None:
        self._store: Store | None = None  # of a run of several processes
        self._started: list[subprocess.Popen] = []  # local ranks 1, 2, ...
        self._starter: int | None = None  # process id of the rank that has started this one
        self._folder: Path | None = None
        self._in_stage = False
        self._waiting = False  # whether the main thread waits for what the thread finds
        self._over = False

    def begin(self, trainer: Trainer) -> None:
        """Watch while a stage runs; the process group is set up."""
        if trainer.world_size == 1:
            return
        log_dir = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        self._folder, self._in_stage = Path(log_dir) if log_dir else None, True
        self.adopt(trainer)
        if self._store is not None:
            return
        self._store = new_store("lost ranks")
        self._rank, self._local_rank = trainer.global_rank, trainer.local_rank
        first = f"first of node {trainer.node_rank}"
        if self._local_rank == 0:
            self._store.set(first, str(os.getpid()))
        elif int(self._store.get(first)) == os.getppid():
            self._starter = os.getppid()
        threading.Thread(target=self._watch, args=(self._store,), name="rank-watch", daemon=True).start()

    def pause(self) -> None:
        """Note that a stage is over: the first rank may end normally, and this one needs no other."""
        self._in_stage = False

    def adopt(self, trainer: Trainer) -> None:
        """Take the ranks over from the launcher, which would kill this process 5 seconds after one of them fails."""
        started = getattr(trainer.strategy.launcher, "procs", [])
        self._started += started
        started.clear()

    def kill(self, trainer: Trainer) -> None:
        """Kill the ranks that this process has started."""
        self.adopt(trainer)
        for process in self._started:
            process.kill()

    def stop(self, trainer: Trainer, exception: BaseException) -> None:
        """Stop watching, as this rank ends by an exception: its own, or that of a collective that lost a rank.

        In the second case this doesn't return: the process ends with the line that says which rank was lost.
        """
        self.adopt(trainer)
        if self._store is not None and _lost_connection(exception):
            self._waiting = True
            if self._started or self._starter:
                time.sleep(SECONDS_TO_END_BY_ITSELF)  # the thread ends the process as soon as it knows
            self._end(f"rank {self._rank} on {socket.gethostname()} lost contact: a rank in another process died")
        self._over = True
        deadline = time.monotonic() + SECONDS_TO_END_BY_ITSELF
        for process in self._started:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()

    # In the thread

    def _watch(self, store: Store) -> None:
        since = None
        while True:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            if self._over:
                return
            found = self._killed() or (self._gone(store) if self._in_stage else None)
            if found is None:
                since = None
                continue
            since = since or time.monotonic()
            what, certain = found
            if certain or self._waiting or time.monotonic() - since > SECONDS_TO_END_BY_ITSELF:
                if self._waiting:
                    time.sleep(SECONDS_BETWEEN_LOOKS)  # the callbacks that got the exception may still write
                self._end(what)

    def _killed(self) -> tuple[str, bool] | None:
        """Return which of the ranks started here ended with an error, and whether it surely was the first to fail."""
        for local_rank, process in enumerate(self._started, 1):
            code = process.poll()
            if code:
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                rank = self._rank - self._local_rank + local_rank
                return f"rank {rank} on {socket.gethostname()} {how}", code < 0
        return None

    def _gone(self, store: Store) -> tuple[str, bool] | None:
        """Return the same for the rank that has started this process, and for one that another host has reported."""
        if self._starter is not None and os.getppid() != self._starter:
            return f"rank {self._rank - self._local_rank} on {socket.gethostname()} died", False
        try:
            return (store.get(KEY).decode(), True) if store.check([KEY]) else None
        except RuntimeError:
            if self._rank == self._local_rank:
                return f"rank 0 on {socket.gethostname()} died", False
            return f"rank {self._rank} on {socket.gethostname()} lost contact: rank 0 on another host died", False

    def _end(self, what: str) -> NoReturn:
        for process in self._started:
            process.kill()
        STATUS_LOCK.acquire(timeout=SECONDS_TO_END_BY_ITSELF)  # and kept: what the collective said is not the reason
        with contextlib.suppress(RuntimeError):  # it may be gone with rank 0
            assert self._store is not None
            self._store.set(KEY, what)
        if self._starter is None or (self._local_rank == 1 and os.getppid() != self._starter):  # one of each host
            line = f"error: {what}: the run is stopped."
            try:
                if self._folder is not None:
                    _record(RunFolder(self._folder), what, self._starter or os.getpid())
            except (UserError, OSError) as error:
                line += f" Its status can't be written: {error}"
            with contextlib.suppress(OSError):
                os.write(2, f"{line}\n".encode())
        os._exit(1)


def _record(run: RunFolder, reason: str, pid: int) -> None:
    """Write into a run's status that it failed, unless another process than this one has resumed it since."""
    status = read_json(run.status)
    if status.get("pid") == pid and status.get("status") in ("running", "failed"):
        write_json(run.status, {**status, "status": "failed", "reason": reason, "ended": now()})


def _lost_connection(exception: BaseException) -> bool:
    text = r"gloo|NCCL|process ?group|connection (was )?(closed|reset)|broken pipe"
    return isinstance(exception, DistError) or (
        isinstance(exception, RuntimeError) and re.search(text, str(exception), re.IGNORECASE) is not None
    )
