"""Ends a run of several processes soon after one of them died, and says which."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from lightning.pytorch import Trainer
from torch.distributed import DistError, PrefixStore, distributed_c10d  # pyright: ignore[reportPrivateImportUsage]

from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_json, write_json
from litlab.runs.provenance import now

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_END_BY_ITSELF = 5.0  # of a process, after another one has ended with an error that both may have
KEY = "lost"


class RankWatch:
    """Ends this process when another rank is gone, which its main thread may not notice in a collective.

    The first process of each host polls the ranks that it has started, and these look whether it is still there.
    Whoever finds one gone tells the other hosts through the store of the process group. Ranks that were started by
    something else (torchrun, srun) are watched by that; here one can only tell that the connection is lost.

    Args:
        trainer: Of this process; its process group is set up.
        started: Local ranks 1, 2, ... as this process has started them.
    """

    def __init__(self, trainer: Trainer, started: Sequence[subprocess.Popen]) -> None:
        store = distributed_c10d._get_default_store().clone()  # a connection of its own: it waits for nobody
        self._store = PrefixStore("lost ranks", store)
        self._rank, self._local_rank = trainer.global_rank, trainer.local_rank
        self._started = started
        self._starter: int | None = None  # process id of the rank that has started this one
        first = f"first of node {trainer.node_rank}"
        if self._local_rank == 0:
            self._store.set(first, str(os.getpid()))
        elif int(self._store.get(first)) == os.getppid():
            self._starter = os.getppid()
        self._folder: Path | None = None
        self._in_stage = False
        self._waiting = False  # the main thread, for what the thread finds
        self._over = threading.Event()
        threading.Thread(target=self._look_on, name="rank-watch", daemon=True).start()

    def begin(self, folder: Path | None) -> None:
        """Told that a stage begins, and the folder of the run if there is one."""
        self._folder, self._in_stage = folder, True

    def rest(self) -> None:
        """Told that a stage is over: the first rank may end in peace, and this one needs no other."""
        self._in_stage = False

    def stop(self, exception: BaseException) -> None:
        """Look no more, as this rank ends by an exception: its own, or that of a collective that lost a rank.

        In the second case this doesn't return: the process ends with the line that says which rank was lost.
        """
        if _lost_connection(exception):
            self._waiting = True
            if self._started or self._starter:
                time.sleep(SECONDS_TO_END_BY_ITSELF)  # the thread ends the process as soon as it knows
            self._end(f"rank {self._rank} on {socket.gethostname()} lost contact: a rank in another process died")
        self._over.set()

    def _look_on(self) -> None:
        since = None
        while not self._over.wait(SECONDS_BETWEEN_LOOKS):
            found = self._killed() or self._gone()
            if found is None:
                since = None
                continue
            since = since or time.monotonic()
            what, certain = found
            if certain or self._waiting or time.monotonic() - since > SECONDS_TO_END_BY_ITSELF:
                if self._waiting:
                    time.sleep(SECONDS_BETWEEN_LOOKS)  # the callbacks that were told of the exception may still write
                self._end(what)

    def _killed(self) -> tuple[str, bool] | None:
        """A rank that this process has started and that ended with an error."""
        for local_rank, process in enumerate(self._started, 1):
            code = process.poll()
            if code:
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                rank = self._rank - self._local_rank + local_rank
                return f"rank {rank} on {socket.gethostname()} {how}", code < 0
        return None

    def _gone(self) -> tuple[str, bool] | None:
        """The rank that has started this process, or one that another host tells of."""
        if not self._in_stage:
            return None
        if self._starter is not None and os.getppid() != self._starter:
            return f"rank {self._rank - self._local_rank} on {socket.gethostname()} died", False
        try:
            if self._store.check([KEY]):
                return self._store.get(KEY).decode(), True
        except RuntimeError:
            if self._rank == self._local_rank:
                return f"rank 0 on {socket.gethostname()} died", False
            return f"rank {self._rank} on {socket.gethostname()} lost contact: rank 0 on another host died", False
        return None

    def _end(self, what: str) -> NoReturn:
        for process in self._started:
            process.kill()
        with contextlib.suppress(RuntimeError):  # it may be gone with rank 0
            self._store.set(KEY, what)
        speaks = self._starter is None or (self._local_rank == 1 and os.getppid() != self._starter)
        if speaks:  # one process of each host
            line = f"error: {what}: the run is stopped."
            try:
                if self._folder is not None:
                    record_loss(RunFolder(self._folder), what, self._starter or os.getpid())
            except (UserError, OSError) as error:
                line += f" Its status can't be written: {error}"
            with contextlib.suppress(OSError):
                os.write(2, f"{line}\n".encode())
        os._exit(1)


def record_loss(run: RunFolder, reason: str, pid: int) -> None:
    """Writes into a run's status that it failed.

    Args:
        run: The folder.
        reason: Which rank was lost.
        pid: The process that must have written the status: another one may have gone on with the run.

    Raises:
        UserError: If the status can't be read or written.
    """
    status = read_json(run.status)
    if status.get("pid") == pid and status.get("status") in ("running", "failed"):
        write_json(run.status, {**status, "status": "failed", "reason": reason, "ended": now()})


def _lost_connection(exception: BaseException) -> bool:
    text = r"gloo|NCCL|process ?group|connection (was )?(closed|reset)|broken pipe"
    return isinstance(exception, DistError) or (
        isinstance(exception, RuntimeError) and re.search(text, str(exception), re.IGNORECASE) is not None
    )
