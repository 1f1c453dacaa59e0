"""Which trials a bench makes, and what it takes for a gain: decided by numbers, without running
anything.
"""

import math
from dataclasses import replace

import pytest

from litlab.commands.bench.compare import (
    Trial,
    choose_best,
    explain,
    is_faster,
    pays,
    search,
    take_turns,
)
from litlab.commands.bench.settings import Change, Facts, list_candidates, read_sides

FUSED, LAST = Change("fused", "true"), Change("channels_last", "true")
COMPILE = Change("compile", "default")


def trial(rate, spread=0.01, startup=1.0) -> Trial:
    return Trial([rate * (1 + spread * offset) for offset in (-2, -1, 0, 1, 2)], startup)


class Bench:
    """Trials that are faster by a factor for each change; a factor of 0 fails."""

    def __init__(self, **factors):
        self.factors, self.made, self.trials = factors, [], {}

    def measure(self, side):
        self.made.append(side)
        factor = math.prod(self.factors.get(change.name, 1.0) for change in side)
        return trial(100 * factor) if factor else Trial(reason="out of memory")

    def search(self, *changes):
        self.trials[()] = self.measure(())
        search(changes, self.trials, self.measure)
        return choose_best(self.trials, math.inf)


def test_changes_that_gain_alone_are_joined_the_largest_first():
    bench = Bench(fused=1.1, channels_last=1.4, compile=0.9)
    assert bench.search(FUSED, COMPILE, LAST) == (LAST, FUSED)
    alone, again = [(FUSED,), (COMPILE,), (LAST,)], [(), (FUSED,), (LAST,)]
    assert bench.made == [(), *alone, *again, *again, *[(), (LAST, FUSED)] * 2]


def test_nothing_is_chosen_by_chance():
    failing = Bench(fused=0)
    assert failing.search(FUSED) == ()
    take_turns([(), (FUSED,)], 2, failing.trials, failing.measure)
    assert failing.made == [(), (FUSED,), (), ()]  # what fails is left out
    # A machine that gets faster after the baseline
    bench, speeds = Bench(), iter([100, 150, 150, 100, 150, 100])
    bench.measure = lambda side: trial(next(speeds))
    assert bench.search(FUSED) == ()
    assert choose_best({(): trial(100), (FUSED,): trial(150)}, math.inf) == ()  # it was tried once


def test_a_gain_is_beyond_the_noise_and_longer_than_a_longer_start():
    assert is_faster(trial(110), trial(100))
    assert not is_faster(trial(101, spread=0.001), trial(100, spread=0.001))  # less than 2 %
    assert not is_faster(trial(110, spread=0.1), trial(100, spread=0.1))  # the quartiles overlap
    old, new = trial(100), trial(125, startup=11)  # 10 s more, 1 s less for 500 samples
    assert [pays(new, old, samples) for samples in (5100, 4900, math.inf)] == [True, False, True]
    verdicts = [explain(*pair, 4900) for pair in ((new, old), (old, new), (old, old))]
    assert [verdict.split()[0] for verdict in verdicts] == ["faster,", "slower", "within"]


CPU = Facts(
    "images", bfloat16=False, convolutions=False, run_samples=1e6,
    hardware={"device": "cpu", "device_name": "mine", "cores": 2},
    current={"precision": "32-true", "compile": None, "channels_last": False, "num_workers": 0,
             "batch_size": 64, "fused": None},
)  # fmt: skip
UNITS = replace(
    CPU,
    convolutions=True,
    bfloat16=True,
    current=CPU.current | {"fused": True, "compile": "default"},
)
GPU = replace(CPU, convolutions=True, hardware={"device": "cuda", "cores": 16})


@pytest.mark.parametrize(
    ("facts", "allowed", "names"),
    [
        (CPU, [], "fused=true compile=default num_workers=1"),
        (UNITS, ["precision", "batch_size"],
         "precision=bf16-mixed channels_last=true num_workers=1 batch_size=128"),
        (GPU, ["precision"],
         "precision=16-mixed fused=true channels_last=true compile=default num_workers=2 "
         "num_workers=4 compile=reduce-overhead compile=max-autotune"),
    ],
)  # fmt: skip
def test_candidates(facts, allowed, names):
    assert [str(change) for change in list_candidates(facts, allowed)] == names.split()


def test_sides_as_they_are_typed():
    sides = read_sides("baseline,compile + fused=true, eager+with/ema.yaml,baseline")
    assert sides[:2] == [(), (COMPILE, FUSED)]
    assert [change.flag for change in sides[2]] == ["--compile.mode=null", "--config=with/ema.yaml"]
