"""What trials have measured, when one side is faster than another, and the order in which sides are
tried.

Nothing is run here: `measure` is.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from litlab.commands.bench.settings import Change, Side

LEAST_GAIN = 1.02  # below, a change is not worth a line in a config
TURNS = 3


@dataclass
class Trial:
    """What the trials of a side have measured."""

    rates: list[float] = field(default_factory=list)  # samples per second, in each round
    # seconds from when the data is ready until steps take what they take from then on, in the first
    # trial
    startup: float = 0.0
    reason: str = ""  # why it failed, in one line; empty if it did not
    turns: int = 1  # how many trials there were

    @property
    def rate(self) -> float:
        """Samples per second: the median of the rounds; 0 where there are none."""
        return statistics.median(self.rates) if self.rates else 0.0

    @property
    def quartiles(self) -> tuple[float, float]:
        low, _, high = statistics.quantiles(self.rates, n=4, method="inclusive")
        return low, high

    def add(self, other: "Trial") -> None:
        """Take in another trial of the same side. Its start-up, from a warm cache, does not
        count.
        """
        self.rates += other.rates
        self.reason = other.reason
        self.turns += 1

    def run_seconds(self, samples: float) -> float:
        return self.startup + samples / self.rate


Trials = dict[Side, Trial]


def is_faster(new: Trial, old: Trial) -> bool:
    """Return whether a gain is beyond the noise: 2 % in the median, and quartiles that do not
    overlap.
    """
    if new.reason or old.reason:
        return False
    return new.rate >= LEAST_GAIN * old.rate and new.quartiles[0] > old.quartiles[1]


def pays(new: Trial, old: Trial, samples: float) -> bool:
    """Return whether a run of so many samples ends earlier: the gain is real, and longer than a
    longer start-up.
    """
    return is_faster(new, old) and (
        math.isinf(samples) or new.run_seconds(samples) < old.run_seconds(samples)
    )


def explain(new: Trial, old: Trial, samples: float) -> str:
    if is_faster(new, old):
        return (
            "faster"
            if pays(new, old, samples)
            else "faster, but its start-up takes longer than it gains"
        )
    return new.reason or ("slower" if is_faster(old, new) else "within the noise")


def take_turns(
    sides: Sequence[Side], turns: int, trials: Trials, measure: Callable[[Side], Trial]
) -> None:
    """Measure sides in turns, so that what else the machine does hits all of them; one that fails
    is left out.
    """
    for _ in range(turns):
        for side in sides:
            if side not in trials:
                trials[side] = measure(side)
            elif not trials[side].reason:
                trials[side].add(measure(side))


def search(candidates: Sequence[Change], trials: Trials, measure: Callable[[Side], Trial]) -> None:
    """Try each change alone, those that look faster again in turns, then those that are faster
    together.
    """
    singles = [(change,) for change in candidates]
    take_turns(singles, 1, trials, measure)
    promising = [side for side in singles if trials[side].rate > trials[()].rate]
    if promising:
        take_turns([(), *promising], TURNS - 1, trials, measure)

    together: dict[str, Change] = {}  # by setting; of several values the fastest
    for side in sorted(promising, key=lambda side: -trials[side].rate):
        if is_faster(trials[side], trials[()]):
            together.setdefault(side[0].name, side[0])
    if len(together) > 1:
        take_turns([(), tuple(together.values())], TURNS - 1, trials, measure)


def choose_best(trials: Trials, samples: float) -> Side:
    """Return the fastest side among those that pay and were measured more than once, or else the
    first one.
    """
    first = next(iter(trials))
    paying = [
        side
        for side, trial in trials.items()
        if trial.turns > 1 and pays(trial, trials[first], samples)
    ]
    return max(paying, key=lambda side: trials[side].rate, default=first)
