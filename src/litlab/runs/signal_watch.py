"""A thread that hears the signals of its process and agrees with the other ranks on where all of them stop."""

import os
import select
import signal
import threading
from collections.abc import Callable, Collection

from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

SECONDS_BETWEEN_LOOKS = 0.25  # at the store, whether another rank has got a signal
SECONDS_WHILE_AGREEING = 0.01

_hearing = False


class SignalWatch:
    """Says after which step this process stops, the same one on every rank.

    Ranks can't stop each for itself: the next step of the others would wait for them for ever. They agree without a
    collective, through keys in the store of the process group. The rank that gets a signal sets one. The thread of each
    rank, which looks for it a few times a second, answers with the first step its main thread can still stop after: the
    current one, or where training is in a validation, the one before it. The highest answer is where all stop. Past its
    own answer no main thread goes before it knows that step, and as threads answer, not main threads that may be
    waiting in a collective, it soon does.

    Python runs signal handlers in the main thread, which may hang in a collective. The thread therefore listens to the
    wakeup descriptor, to which each signal's number is written at once: a second SIGINT always ends the process.

    Args:
        store: Store of the process group, with a prefix of this stage of the run; None for a single process.
        rank: This process among all.
        ranks: Number of processes.
        signals: Numbers of the signals to hear.
        leave: Ends the process at once; called at the second SIGINT.
    """

    def __init__(
        self, store: Store | None, rank: int, ranks: int, signals: Collection[int], leave: Callable[[], None]
    ) -> None:
        self.signum: int | None = None  # what was heard, here or on another rank
        self._store = store
        self._answers = [f"answer {other}" for other in range(ranks)]
        self._rank = rank
        self._signals = signals
        self._leave = leave
        self._interrupts = 0
        self._lock = threading.Lock()  # around what an answer is made from
        self._step = 0
        self._evaluating = False
        self._answer: int | None = None
        self._agreed: int | None = None
        self._known = threading.Event()

    # In the main thread

    def start(self, signum: int | None = None) -> None:
        """Listen.

        Args:
            signum: A signal that came earlier and that nothing was done about.
        """
        global _hearing
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        _hearing = True
        if signum is not None:
            self._hear(signum)
        self._thread = threading.Thread(target=self._listen, name="signal-watch", daemon=True)
        self._thread.start()

    def stop(self) -> int | None:
        """Listen no more, and return the signal that was heard, if any."""
        global _hearing
        _hearing = False
        signal.set_wakeup_fd(self._before)
        os.write(self._writing, b"\0")
        self._thread.join()
        os.close(self._reading)
        os.close(self._writing)
        return self.signum

    @property
    def counts(self) -> bool:
        """Whether it must be told of each step: always among several ranks, else after a signal."""
        return self._store is not None or self.signum is not None

    def reached(self, step: int) -> bool:
        """Told that a step is done, return whether to stop after it."""
        with self._lock:
            self._step = step
            answer = self._answer
        return answer is not None and step >= answer and self._stops_at(step)

    def due(self, step: int) -> bool:
        """Return whether to stop, as far as is known: among several ranks, for where all of them are in step."""
        return self._known.is_set() and self._stops_at(step)

    def evaluate(self, running: bool) -> None:
        """Told that the batches of an evaluation begin or are over; between them each rank may stop on its own."""
        with self._lock:
            self._evaluating = running

    def reached_in_evaluation(self) -> bool:
        """Return whether to stop within an evaluation."""
        with self._lock:
            step, answer = self._step, self._answer
        return answer is not None and step >= answer and self._stops_at(step)

    def _stops_at(self, step: int) -> bool:
        self._known.wait()
        assert self._agreed is not None
        return step >= self._agreed

    # In the thread

    def _listen(self) -> None:
        while True:
            period = None
            if self._store is not None and not self._known.is_set():
                period = SECONDS_BETWEEN_LOOKS if self.signum is None else SECONDS_WHILE_AGREEING
            if select.select([self._reading], [], [], period)[0]:
                for number in os.read(self._reading, 64):
                    if number == 0:
                        self._absent()
                        return
                    if number in self._signals:
                        self._hear(number)
            if self._store is not None and not self._known.is_set():
                try:
                    self._agree(self._store)
                except RuntimeError:  # the rank that kept the store is gone, and with it all that could be agreed on
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

    def _absent(self) -> None:
        """Leaves an answer that binds nobody: this rank is through with the stage, others may not be."""
        if self._store is not None and self._answer is None:
            try:
                self._store.set(self._answers[self._rank], "0")
            except RuntimeError:
                return  # the store is gone, and with it those who would read it


def _forget() -> None:
    """In a forked process, such as a worker that loads data: its signals are none of its parent's.

    SIGTERM ends it again. SIGINT, which a terminal sends to all processes, stays without effect: the parent needs its
    workers to finish the step, and ends them then.
    """
    if _hearing:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget)
