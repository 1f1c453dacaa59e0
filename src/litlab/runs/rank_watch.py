"""End a run of several processes soon after one of them died, with one message: which, where, its last lines."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from lightning.pytorch import Trainer

from litlab.checkpointing.internals import new_store
from litlab.errors import UserError
from litlab.runs.folder import STATUS_LOCK
from litlab.runs.rank_link import Peer, RankLink
from litlab.runs.rank_loss import Loss, is_lost_connection, last_lines, leave_to_first_rank

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_END_BY_ITSELF = 5.0  # of a process, after another one has ended with an error that both may have
SECONDS_FOR_THE_SAME = 1.0  # until another rank fails by the same error, or it is known how it was killed


class RankWatch:
    """The processes of a run: end this one when another rank is gone, which a collective may not notice.

    Each rank has a connection to the first one (`RankLink`), which breaks when either process ends, whoever has started
    them: Lightning, torchrun or srun. A rank that fails by an exception of its own says so first. The first rank prints
    what has happened and lets the others end; where it is gone itself, the second one does. In a run of a single
    process it does nothing.
    """

    _links = 0  # of this process, which have the same store

    def __init__(self) -> None:
        self._link: RankLink | None = None  # of a run of several processes
        self._started: list[subprocess.Popen] = []  # local ranks 1, 2, ...
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None  # torchrun's process
        self._folder: Path | None = None
        self._stage = 0  # how many have begun
        self._in_stage = False
        self._waiting = False  # whether the main thread waits for what the thread finds
        self._failure: str | None = None  # the exception that ends this rank
        self._heard = threading.Event()  # whether the first rank prints it
        self._over = False

    def begin(self, trainer: Trainer) -> None:
        """Watch while a stage runs; the process group is set up."""
        if trainer.world_size == 1:
            return
        log_dir = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        self._folder, self._in_stage = Path(log_dir) if log_dir else None, True
        self._stage += 1
        self.adopt(trainer)
        if self._stage == 1:
            self._link = self._connect(trainer)
        if self._link is not None:
            self._link.say(in_stage=True)

    def _connect(self, trainer: Trainer) -> RankLink | None:
        """Return the connections of this rank; a run goes on without them, as networks may forbid them."""
        RankWatch._links += 1
        self._rank, self._local_rank = trainer.global_rank, trainer.local_rank
        try:
            link = RankLink(new_store(f"rank link {RankWatch._links}"), self._rank, trainer.world_size)
        except OSError as error:
            print(
                f"warning: {error}: if either of them dies, the other waits for it as long as a collective may take; "
                "let the machines of a run connect to each other on all ports.",
                file=sys.stderr,
            )
            return None
        watch = self._watch_all if self._rank == 0 else self._watch_first
        threading.Thread(target=watch, args=(link,), name="rank-watch", daemon=True).start()
        return link

    def pause(self) -> None:
        """Note that a stage is over: any rank may end normally."""
        self._in_stage = False
        if self._link is not None:
            self._link.say(in_stage=False, done=self._stage)

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

        In the second case this doesn't return: the process ends with the message that says which rank was lost.
        """
        self.adopt(trainer)
        if self._link is not None:
            if is_lost_connection(exception):
                self._waiting = True
                time.sleep(SECONDS_TO_END_BY_ITSELF)  # the thread ends the process as soon as it knows
                self._end(Loss(f"rank {self._rank} on {socket.gethostname()} lost contact: another rank died"))
            self._report(self._link, exception)
        elif isinstance(exception, Exception):
            self.kill(trainer)
        self._over = True
        deadline = time.monotonic() + SECONDS_TO_END_BY_ITSELF
        for process in self._started:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()

    def _report(self, link: RankLink, exception: BaseException) -> None:
        """Tell the others how this rank ends, and leave the exception to the first one to print."""
        if not isinstance(exception, Exception):  # a signal, which the others have heard, too
            link.say(over=getattr(exception, "code", 1))
            return
        code = 2 if isinstance(exception, UserError) else 1
        self._failure = f"{type(exception).__name__}: {exception}"
        if self._rank > 0:
            link.say(failure=self._failure, lines=last_lines(exception), code=code)
            if self._heard.wait(SECONDS_TO_END_BY_ITSELF):
                leave_to_first_rank(exception)
            return
        link.say(over=code)
        deadline = time.monotonic() + SECONDS_FOR_THE_SAME
        while time.monotonic() < deadline and not all(peer.gone or "failure" in peer.said for peer in link.peers):
            time.sleep(0.05)
        time.sleep(0.05)  # for the thread to answer

    # In the thread of the first rank

    def _watch_all(self, link: RankLink) -> None:
        since: float | None = None
        while not (self._over and all(peer.gone for peer in link.peers)):
            self._wait(link)
            if self._failure is not None:
                self._answer(link)
            if self._over or self._failure is not None:
                continue
            loss = self._loss(link)
            if loss is None:
                since = None
                continue
            since = since or time.monotonic()
            time.sleep(SECONDS_BETWEEN_LOOKS)
            hurry = loss.certain or self._waiting
            if time.monotonic() - since > (SECONDS_FOR_THE_SAME if hurry else SECONDS_TO_END_BY_ITSELF):
                self._end(loss)

    def _answer(self, link: RankLink) -> None:
        """Print what other ranks have failed by, unless this one has failed by the same, and tell them so."""
        for peer in link.peers:
            if "failure" in peer.said and "heard" not in peer.said:
                peer.said["heard"] = True
                if peer.said["failure"] != self._failure:
                    Loss(f"rank {peer.said['rank']} on {peer.said['host']} failed", peer.said["lines"]).print()
                peer.say(heard=True)

    def _loss(self, link: RankLink) -> Loss | None:
        """Return which rank is lost, None where none is."""
        killed = self._killed()
        if killed is not None and killed.certain:
            return killed
        for said in (peer.said for peer in link.peers):
            if "killed" in said:
                return Loss(said["killed"])
        failed = [peer.said for peer in link.peers if "failure" in peer.said]
        if failed:
            alike = [said["rank"] for said in failed if said["failure"] == failed[0]["failure"]][1:]
            too = f" (so did {', '.join(map(str, alike))})" if alike else ""
            what = f"rank {failed[0]['rank']} on {failed[0]['host']} failed{too}"
            return Loss(what, failed[0]["lines"], failed[0]["code"])
        for peer in link.peers:
            if peer.gone and (peer.said.get("in_stage") or self._needs(peer)) and "over" not in peer.said:
                return Loss(f"rank {peer.said['rank']} on {peer.said['host']} died")
        return killed

    # In that of another one

    def _watch_first(self, link: RankLink) -> None:
        [first] = link.peers
        since: float | None = None
        while not self._over:
            self._wait(link)
            if "heard" in first.said:
                self._heard.set()
            if first.gone:
                time.sleep(SECONDS_BETWEEN_LOOKS)  # nothing is left to wait for in `wait`
            killed = self._killed()
            if killed is not None and killed.certain:
                link.say(killed=killed.what)
            if "over" in first.said and (self._failure is None or first.said.get("now")):
                since = since or time.monotonic()
                if first.said.get("now") or self._waiting or time.monotonic() - since > SECONDS_TO_END_BY_ITSELF:
                    self._leave(first.said["over"])
            elif first.gone and self._failure is None and self._needs(first):
                self._end(Loss(f"rank 0 on {first.said['host']} died"))

    # In both

    def _needs(self, peer: Peer) -> bool:
        """Return whether this rank waits for another one, or is in a stage that the other one has not finished."""
        return self._waiting or (self._in_stage and peer.said.get("done", 0) < self._stage)

    def _wait(self, link: RankLink) -> None:
        link.wait(SECONDS_BETWEEN_LOOKS)
        if self._agent is not None and os.getppid() != self._agent:
            self._agent = None
            os.kill(os.getpid(), signal.SIGTERM)  # who has started this process can't end it any more

    def _killed(self) -> Loss | None:
        """Return which of the ranks started here has ended with an error."""
        for local_rank, process in enumerate(self._started, 1):
            code = process.poll()
            if code:
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                rank = self._rank - self._local_rank + local_rank
                return Loss(f"rank {rank} on {socket.gethostname()} {how}", certain=code < 0)
        return None

    def _end(self, loss: Loss) -> NoReturn:
        assert self._link is not None
        STATUS_LOCK.acquire(timeout=SECONDS_TO_END_BY_ITSELF)  # and kept: what the collective said is not the reason
        first = self._rank == 0
        if first or (self._rank == 1 and self._link.peers[0].gone):
            if self._folder is not None:
                loss.record(self._folder, os.getpid() if first else self._link.peers[0].said["pid"])
            loss.print()
        if first:
            self._link.say(heard=True, over=loss.code, now=True)
        self._leave(loss.code)

    def _leave(self, code: int) -> NoReturn:
        for process in self._started:
            process.kill()
        os._exit(code)
