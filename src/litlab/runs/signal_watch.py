"""A thread that hears the signals of its process and agrees with the other ranks on where all of them stop."""

import os
import select
import signal
import threading
from collections.abc import Callable, Collection
from contextlib import suppress

from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

SECONDS_BETWEEN_LOOKS = 0.25  # at the store, whether another rank has got a signal
SECONDS_WHILE_AGREEING = 0.01

_listening = False


class SignalWatch:
    """Decide after which step this process stops, the same one on every rank.

    Ranks can't stop each on its own: the others would wait for them in the next step forever. They agree without a
    collective, through keys in the store of the process group. The rank that gets a signal sets one. The thread of each
    rank, which looks for it a few times a second, answers with the first step its main thread can still stop after: the
    next one, or where training is in a validation, the last one. The highest answer is where all stop. Past its own
    answer no main thread continues before it knows that step, and as threads answer, not main threads that may be
    waiting in a collective, it soon does.

    Python runs signal handlers in the main thread, which may hang in a collective. The thread therefore listens to the
    wakeup descriptor, to which each signal's number is written at once: a second SIGINT always ends the process.

    Args:
        store: Store of the process group, with a prefix of this stage of the run; None for a single process.
        rank: Rank of this process.
        ranks: Number of processes.
    """

    def __init__(self, store: Store | None = None, rank: int = 0, ranks: int = 1) -> None:
        self.signum: int | None = None  # what was heard, here or on another rank
        self._store = store
        self._answers = [f"answer {other}" for other in range(ranks)]
        self._rank = rank
        self._interrupts = 0
        self._lock = threading.Lock()  # around what an answer is made from
        self._step = 0
        self._evaluating = False
        self._answer: int | None = None
        self._agreed = 0
        self._known = threading.Event()  # the step agreed on is

    # In the main thread

    def start(self, signals: Collection[int], leave: Callable[[], None], signum: int | None = None) -> None:
        """Listen; without this, there is never a signal.

        Args:
            signals: Numbers of the signals to hear.
            leave: Ends the process at once; called at the second SIGINT.
            signum: A signal that came earlier and has not stopped anything.
        """
        global _listening
        self._signals, self._leave = signals, leave
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        _listening = True
        if signum is not None:
            self._hear(signum)
        self._thread = threading.Thread(target=self._listen, name="signal-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        global _listening
        _listening = False
        signal.set_wakeup_fd(self._before)
        os.write(self._writing, b"\0")
        self._thread.join()
        os.close(self._reading)
        os.close(self._writing)

    @property
    def needs_steps(self) -> bool:
        """Whether each step must be reported to it: always with several ranks, otherwise once there was a signal."""
        return self._store is not None or self.signum is not None

    def reached(self, step: int | None = None) -> bool:
        """Return whether to stop after a step that is complete; None within an evaluation, which completes none."""
        with self._lock:
            self._step = self._step if step is None else step
            step, answer = self._step, self._answer
        if answer is None or step < answer:
            return False
        self._known.wait()
        return step >= self._agreed

    def due(self, step: int) -> bool:
        """Return whether to stop, as far as is known: among several ranks, for where all of them are in step."""
        return self._known.is_set() and step >= self._agreed

    def evaluate(self, running: bool) -> None:
        """Note that the batches of an evaluation begin or are over; between them each rank may stop on its own."""
        with self._lock:
            self._evaluating = running

    # In the thread

    def _listen(self) -> None:
        while True:
            store = None if self._known.is_set() else self._store
            waiting = SECONDS_BETWEEN_LOOKS if self.signum is None else SECONDS_WHILE_AGREEING
            if select.select([self._reading], [], [], waiting if store is not None else None)[0]:
                for number in os.read(self._reading, 64):
                    if number == 0:
                        self._abstain()
                        return
                    if number in self._signals:
                        self._hear(number)
            if store is not None:
                try:
                    self._agree(store)
                except RuntimeError:  # the rank that kept the store is gone
                    self._store = None
                    if self.signum is not None:
                        self._settle(0)

    def _hear(self, signum: int) -> None:
        self._interrupts += signum == signal.SIGINT
        if self._interrupts > 1:
            self._leave()
        if self.signum is None:
            self.signum = signum
            if self._store is None:
                self._settle(0)  # a single process stops where it can

    def _agree(self, store: Store) -> None:
        if self._answer is None:
            if self.signum is not None:
                store.set("signal", str(int(self.signum)))
            elif store.check(["signal"]):
                self.signum = int(store.get("signal"))
            else:
                return
            with self._lock:
                self._answer = self._step if self._evaluating else self._step + 1
            store.set(self._answers[self._rank], str(self._answer))
        if store.check(self._answers):
            self._settle(max(int(answer) for answer in store.multi_get(self._answers)))

    def _settle(self, step: int) -> None:
        self._agreed = step
        with self._lock:
            self._answer = step if self._answer is None else self._answer
        self._known.set()

    def _abstain(self) -> None:
        """Answer with step 0, which binds nobody: this rank has finished the stage, others may not have."""
        if self._store is not None and self._answer is None:
            with suppress(RuntimeError):  # the store is gone, and with it those who would read it
                self._store.set(self._answers[self._rank], "0")


def _reset_signals() -> None:
    """Reset the signals of a forked process, such as a worker that loads data.

    SIGTERM ends it again. SIGINT, which a terminal sends to all processes, stays without effect: the parent needs its
    workers to finish the step, and ends them then.
    """
    if _listening:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_reset_signals)
