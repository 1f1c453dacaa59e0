"""Which trials are made: one change at a time, then those that gain together, then the best and the baseline in turns.

Nothing is run here: `measure` is.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from litlab.bench.changes import Change, Changes
from litlab.bench.measurement import Trial, merged, pays, speedup

Measure = Callable[[Changes], Trial]
AGAIN = 3  # trials between two of the experiment as it is


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one side is as another, in each of several turns.

    Args:
        turns: The ratio of each turn.
    """

    turns: list[float]

    @property
    def median(self) -> float:
        """The middle of the turns."""
        return statistics.median(self.turns)

    @property
    def is_gain(self) -> bool:
        """Whether the one was faster in every turn."""
        return min(self.turns, default=0.0) > 1

    def __str__(self) -> str:
        """Return it with its spread."""
        turns = "1 turn" if len(self.turns) == 1 else f"{len(self.turns)} turns"
        return f"{self.median:.3g} times as fast ({min(self.turns):.3g} to {max(self.turns):.3g} in {turns})"


def search(
    measure: Measure, base: Trial, changes: Sequence[Change], allowed: set[str], has_time: Callable[[], bool]
) -> Changes:
    """Find the changes that make an experiment fastest together.

    Each change is measured alone, and the experiment as it is again after every few of them: where the machine gets
    slower or faster meanwhile, its rounds spread, and nothing but a larger gain counts. Those that pay
    (`litlab.bench.measurement.pays`) are then added to the best so far one after another, the largest gain first, and
    stay if the whole pays against what it was without them.

    Args:
        measure: Runs a trial.
        base: The experiment as it is.
        changes: What to try, the most promising first.
        allowed: Settings that may be kept although they change what is learned.
        has_time: Whether there is time for another trial.

    Returns:
        The changes; () if none pays.
    """
    bases, alone = [base], []
    for number, change in enumerate(changes, start=1):
        if not has_time():
            break
        alone.append(measure((change,)))
        if number % AGAIN == 0 and has_time():
            bases.append(measure(()))
    best = base = merged(bases)[0]
    allowed_ones = [trial for trial in alone if not any(c.learns and c.name not in allowed for c in trial.changes)]
    for trial in sorted(_paying(allowed_ones, base), key=lambda trial: -trial.known.rate):
        if trial.changes[0].name in [change.name for change in best.changes]:
            continue  # another value of a setting that is in it
        if best is base:
            best = trial
        elif has_time():
            together = measure((*best.changes, *trial.changes))
            best = next(iter(_paying([together], best)), best)
    return best.changes


def _paying(trials: Sequence[Trial], old: Trial) -> list[Trial]:
    return [trial for trial in trials if trial.measured is not None and pays(trial.measured, old.known)]


def in_turns(
    measure: Measure, sides: Sequence[Changes], turns: int, has_time: Callable[[], bool]
) -> dict[Changes, Ratio]:
    """Measure the sides one after the other, again and again, so that what else the machine does hits all of them.

    A side that can't be measured is left out from then on; without the first one there is nothing to compare with.

    Args:
        measure: Runs a trial.
        sides: The sides; the first is what the others are compared with.
        turns: How often, at most.
        has_time: Whether there is time for another turn.

    Returns:
        By side, but not of the first: how fast it is.
    """
    ratios = {side: Ratio([]) for side in sides[1:]}
    failed: set[Changes] = set()
    for turn in range(turns):
        if turn and not has_time():
            break
        first = measure(sides[0]).measured
        if first is None:
            break
        for side in sides[1:]:
            if side in failed:
                continue
            if (measured := measure(side).measured) is None:
                failed.add(side)
            else:
                ratios[side].turns.append(speedup(measured, first))
    return {side: ratio for side, ratio in ratios.items() if ratio.turns}
