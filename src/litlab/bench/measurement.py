"""What a trial has measured, and when one is faster than another."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from litlab.bench.changes import Changes

LEAST_GAIN = 1.02  # below, a change is not worth a line in a config


@dataclass(frozen=True)
class Measurement:
    """What a process has measured of an experiment.

    Args:
        step_seconds: Seconds of an optimizer step, in each round.
        samples_per_step: Mean number of samples of a step.
        start_seconds: From when the data is ready to the first batch. No setting has a part in what comes before.
        first_steps_seconds: What the first steps took beyond the time of later ones: compiling, allocating, tuning.
        memory_gib: Peak: reserved on the device, or resident in host memory.
        precision: Of the Trainer.
        epoch_steps: Optimizer steps of an epoch; inf where that is not known.
        epochs: Of the whole run; inf where there is no end.
    """

    step_seconds: list[float]
    samples_per_step: float
    start_seconds: float
    first_steps_seconds: float
    memory_gib: float
    precision: str
    epoch_steps: float
    epochs: float

    @property
    def step(self) -> float:
        """Seconds of a step: the median of the rounds."""
        return statistics.median(self.step_seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile of the seconds of a step."""
        if len(self.step_seconds) == 1:
            return self.step, self.step
        low, _, high = statistics.quantiles(self.step_seconds, n=4, method="inclusive")
        return low, high

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples_per_step / self.step

    @property
    def startup(self) -> float:
        """Seconds that a run needs, once the data is ready, before its steps take what they take from then on."""
        return self.start_seconds + self.first_steps_seconds


@dataclass(frozen=True)
class Trial:
    """An experiment with some changes, run for a few steps.

    Args:
        changes: The changes.
        measured: What was measured; None if it did not get that far.
        reason: Why it did not, in one line.
        tail: The last lines that it printed then.
    """

    changes: Changes
    measured: Measurement | None = None
    reason: str = ""
    tail: list[str] = field(default_factory=list)

    @property
    def known(self) -> Measurement:
        """What was measured; a RuntimeError where nothing was."""
        if self.measured is None:
            raise RuntimeError(f"{self.changes} was not measured")
        return self.measured


def speedup(new: Measurement, old: Measurement) -> float:
    """Return how many times as many samples per second one has as the other."""
    return new.rate / old.rate


def is_faster(new: Measurement, old: Measurement) -> bool:
    """Return whether a gain is beyond the noise.

    It is if the time of a sample is lower by 2 % in the median, and the quartiles do not overlap: three quarters of the
    new rounds are faster than three quarters of the old ones.
    """
    slow, fast = new.quartiles[1] / new.samples_per_step, old.quartiles[0] / old.samples_per_step
    return speedup(new, old) >= LEAST_GAIN and slow < fast


def payback(new: Measurement, old: Measurement) -> float:
    """Return the epochs after which the longer start-up of the faster one is made good; inf if it never is."""
    extra = new.startup - old.startup
    samples = old.epoch_steps * old.samples_per_step
    if extra <= 0 and speedup(new, old) >= 1:
        return 0.0
    saved = samples * (1 / old.rate - 1 / new.rate)
    if math.isinf(samples):
        return 0.0 if saved > 0 else math.inf
    return extra / saved if saved > 0 else math.inf


def pays(new: Measurement, old: Measurement) -> bool:
    """Return whether a run of the experiment's length ends earlier: the gain is real, and pays back within the run."""
    return is_faster(new, old) and payback(new, old) < old.epochs


def merged(trials: Sequence[Trial]) -> list[Trial]:
    """Return one trial for each set of changes: with the rounds of all, and the start-up of the first, a cold one."""
    found: dict[Changes, Trial] = {}
    for trial in trials:
        before = found.get(trial.changes)
        if before is None or before.measured is None or trial.measured is None:
            found.setdefault(trial.changes, trial)
        else:
            rounds = [*before.measured.step_seconds, *trial.measured.step_seconds]
            found[trial.changes] = replace(before, measured=replace(before.measured, step_seconds=rounds))
    return list(found.values())
