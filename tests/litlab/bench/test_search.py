"""Which trials a bench makes, and what it takes for a gain: decided by numbers, without running anything."""

import math
from dataclasses import replace

import pytest

from litlab.bench.changes import Change, Changes, Machine, candidates, hopeless, read_allowed, read_side, title
from litlab.bench.measurement import Measurement, Trial, is_faster, merged, payback, pays
from litlab.bench.search import in_turns, search
from litlab.errors import UserError

THREADS, LAST, COMPILE = Change("threads", "1"), Change("channels_last", "true"), Change("compile", "default")
BATCH = Change("batch_size", "128")


def measured(step: float, samples: float = 10, startup: float = 1, spread: float = 0.01, **others) -> Measurement:
    rounds = [step * (1 + spread * offset) for offset in (-2, -1, 0, 1, 2)]
    settings = {"precision": "32-true", "epoch_steps": 100, "epochs": 10, "memory_gib": 1, **others}
    return Measurement(rounds, samples, start_seconds=0.5, first_steps_seconds=startup - 0.5, **settings)


class Bench:
    """Trials whose steps get faster by a factor for each change; `fails` can't be run."""

    def __init__(self, factors: dict[Change, float], fails: tuple[Change, ...] = (), trials: int = 99) -> None:
        self.factors, self.fails, self.trials = factors, fails, trials
        self.made: list[Changes] = []

    def measure(self, changes: Changes) -> Trial:
        self.made.append(changes)
        if set(changes) & set(self.fails):
            return Trial(changes, reason="out of memory")
        samples = 20 if BATCH in changes else 10
        return Trial(
            changes, measured(math.prod([1 / self.factors.get(c, 1) for c in changes]) * samples / 10, samples)
        )

    def search(self, *changes: Change, allowed: tuple[str, ...] = ()) -> Changes:
        base = self.measure(())
        return search(self.measure, base, changes, set(allowed), lambda: len(self.made) < self.trials)


def test_changes_that_gain_alone_are_joined_the_largest_first():
    bench = Bench({THREADS: 1.1, LAST: 1.4, COMPILE: 1.0})
    assert bench.search(THREADS, COMPILE, LAST) == (LAST, THREADS)
    assert bench.made == [(), (THREADS,), (COMPILE,), (LAST,), (), (LAST, THREADS)]


def test_a_change_that_spoils_another_is_left_out():
    bench = Bench({THREADS: 1.1, LAST: 1.4})
    plain = bench.measure
    bench.measure = lambda changes: plain(changes if len(changes) < 2 else changes[:1])  # no faster than the first
    assert bench.search(THREADS, LAST) == (LAST,)


def test_of_two_values_of_a_setting_the_faster_one_is_kept():
    two = Change("threads", "2")
    bench = Bench({THREADS: 1.2, two: 1.3})
    assert bench.search(THREADS, two) == (two,)
    assert (two, THREADS) not in bench.made


def test_what_changes_the_learning_is_measured_but_kept_only_if_allowed():
    bench = Bench({BATCH: 1.5})
    assert bench.search(BATCH) == ()
    assert (BATCH,) in bench.made
    assert Bench({BATCH: 1.5}).search(BATCH, allowed=("batch_size",)) == (BATCH,)


def test_a_trial_that_fails_is_no_gain():
    assert Bench({THREADS: 2, LAST: 1.1}, fails=(THREADS,)).search(THREADS, LAST) == (LAST,)


def test_without_time_the_best_so_far_is_kept():
    bench = Bench({THREADS: 1.5, LAST: 1.4, COMPILE: 2.0}, trials=3)
    assert bench.search(THREADS, LAST, COMPILE) == (THREADS,)
    assert bench.made == [(), (THREADS,), (LAST,)]


def test_a_machine_that_gets_faster_makes_no_gain():
    """The experiment as it is is measured again after three trials, and what it took then counts, too."""
    bench = Bench({})
    plain = bench.measure
    bench.measure = lambda changes: plain(changes) if not bench.made else Trial(plain(changes).changes, measured(0.8))
    assert bench.search(THREADS, LAST, COMPILE) == ()
    assert bench.made == [(), (THREADS,), (LAST,), (COMPILE,), ()]


@pytest.mark.parametrize(
    ("new", "old", "faster"),
    [
        (measured(0.9), measured(1.0), True),
        (measured(0.99, spread=0.001), measured(1.0, spread=0.001), False),  # less than 2 %
        (measured(0.9, spread=0.1), measured(1.0, spread=0.1), False),  # the quartiles overlap
        (measured(1.8, samples=20), measured(1.0, samples=10), True),  # by samples, not by steps
        (measured(1.8, samples=10), measured(2.0, samples=20), False),
    ],
)
def test_a_gain_is_beyond_the_noise(new, old, faster):
    assert is_faster(new, old) == faster


def test_payback_is_the_longer_start_over_what_an_epoch_saves():
    old = measured(1.0, startup=2)
    assert payback(measured(0.9, startup=32), old) == pytest.approx(3)  # 30 s more, 10 s less for each epoch
    assert payback(measured(0.9, startup=1), old) == 0
    assert payback(measured(1.1, startup=32), old) == math.inf
    assert payback(measured(1.8, samples=20, startup=32), old) == pytest.approx(3)  # as many samples in half the steps
    assert payback(measured(0.9, startup=32, epoch_steps=math.inf), measured(1.0, epoch_steps=math.inf)) == 0


def test_a_gain_that_pays_back_after_the_end_of_the_run_does_not_pay():
    assert pays(measured(0.9, startup=32), measured(1.0, startup=2, epochs=4))
    assert not pays(measured(0.9, startup=32), measured(1.0, startup=2, epochs=2))


def test_trials_of_the_same_changes_are_one_row_with_the_first_start():
    cold, warm = measured(1.0, startup=30), measured(1.2, startup=3)
    row, other = merged([Trial((COMPILE,), cold), Trial((), cold), Trial((COMPILE,), warm)])
    assert (row.changes, other.changes) == ((COMPILE,), ())
    assert row.known.step_seconds == [*cold.step_seconds, *warm.step_seconds]
    assert row.known.startup == 30


def test_sides_are_compared_turn_by_turn():
    """Each ratio is of two trials that followed each other: a machine that gets slower does not change it."""
    made: list[Changes] = []

    def measure(changes: Changes) -> Trial:
        made.append(changes)
        if changes == (LAST,):
            return Trial(changes, reason="out of memory")
        return Trial(changes, measured(made.count(()) / (2 if changes else 1)))

    ratios = in_turns(measure, [(), (LAST,), (COMPILE,)], 4, lambda: len(made) < 6)
    assert made == [(), (LAST,), (COMPILE,), (), (COMPILE,), (), (COMPILE,)]
    assert list(ratios) == [(COMPILE,)]
    assert ratios[(COMPILE,)].turns == [2, 2, 2]
    assert ratios[(COMPILE,)].is_gain


def test_one_slower_turn_is_no_gain():
    steps = iter([1.0, 0.9, 1.0, 1.1, 1.0, 0.9])
    ratio = in_turns(lambda changes: Trial(changes, measured(next(steps))), [(), (LAST,)], 3, lambda: True)[(LAST,)]
    assert ratio.median == pytest.approx(1 / 0.9)
    assert not ratio.is_gain
    assert str(ratio) == "1.11 times as fast (0.909 to 1.11 in 3 turns)"


CPU = {"threads": "2", "precision": "32-true", "compile": "null", "batch_size": "64", "num_workers": "0"}


def test_candidates_of_a_small_cpu():
    machine = Machine("cpu", bfloat16=False, cores=2, convolutions=False, current=CPU)
    names = [str(change) for change in candidates(machine)]
    assert names == [
        "bf16", "threads=1", "fused", "channels_last", "compile", "batch_size=128", "batch_size=32", "num_workers=1",
        "activation_checkpointing",
    ]  # fmt: skip
    given_up = [str(change) for change in candidates(machine) if hopeless(machine, change)]
    assert given_up == ["bf16", "fused", "channels_last"]
    machine = replace(machine, current={**CPU, "fused": "null"}, convolutions=True, bfloat16=True)
    assert not any(hopeless(machine, change) for change in candidates(machine))
    assert "fused" not in map(str, candidates(replace(machine, current={**CPU, "fused": "true"})))


def test_candidates_of_a_gpu():
    current = {**CPU, "precision": "bf16-mixed", "batch_size": "4096"}
    machine = Machine("cuda", bfloat16=True, cores=16, convolutions=True, current=current)
    names = [str(change) for change in candidates(machine)]
    assert names[:4] == ["compile", "channels_last", "fused", "num_workers=2"]  # bf16 is in place
    assert {"compile=reduce-overhead", "pin_memory=false", "batch_size=8192"} <= set(names)
    assert not any(name.startswith(("threads", "fp16")) for name in names)
    old = Machine("cuda", bfloat16=False, cores=16, convolutions=True, current=CPU)
    assert next(str(change) for change in candidates(old) if not hopeless(old, change)) == "fp16"


def test_sides_as_they_are_typed():
    assert read_side("baseline") == ()
    assert read_side("compile + threads=1") == (COMPILE, THREADS)
    assert title(read_side("compile+threads=1")) == "compile+threads=1"
    assert [change.flag for change in read_side("eager+with/ema.yaml")] == [
        "--compile.mode=null",
        "--config=with/ema.yaml",
    ]
    assert read_allowed("precision, batch_size") == {"precision", "batch_size"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("compil", "--compare: there is no setting 'compil'; did you mean 'compile'?"),
        ("zzz", "--compare: there is no setting 'zzz'; choose from baseline, eager, compile, "),
        ("threads", "--compare: threads has no value; write threads=VALUE"),
        ("threads=[", "--compare: threads=[ is not valid; write it as in YAML"),
    ],
)
def test_sides_that_are_refused(text, line):
    with pytest.raises(UserError, match=r"^--compare") as refused:
        read_side(text)
    assert str(refused.value).startswith(line)


def test_what_may_not_be_allowed():
    with pytest.raises(UserError, match="no setting 'batchsize'; did you mean 'batch_size'"):
        read_allowed("batchsize")
    with pytest.raises(UserError, match="compile does not change what is learned"):
        read_allowed("compile")
