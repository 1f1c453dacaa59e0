"""Splits and folds: disjoint, whole, in proportion."""

import numpy as np
import pytest

from litlab.data.split import SPLITS, split_samples
from tests.litlab.data.conftest import refusal

TRAIN = np.full(200, "train")
LABELS = np.repeat([0, 1, 2], [150, 45, 5])
GROUPS = np.arange(200) ** 2 % 31
TIMES = np.arange(200) * 37 % 100


def find_rows(split):
    return [np.flatnonzero(split == name) for name in SPLITS]


def test_what_is_given_stays():
    given = np.repeat(["train", "val", "test"], [150, 20, 30])
    assert split_samples(given, 0.4, 0.4).tolist() == given.tolist()
    given[150:] = "test"
    split = split_samples(given, 0.1, 0.2)
    assert ((split == "val").sum(), (split == "test").sum()) == (15, 50)
    fold = split_samples(given, 0.1, 0.2, fold="0/3")
    # The folds are of the training samples
    assert (fold == "test").sum() == (fold[150:] == "").sum() == 50


def test_groups_are_whole_and_as_near_to_the_shares_as_they_can_be():
    def find_groups(groups, *shares):
        split = split_samples(TRAIN, *shares, groups=groups)
        return [groups[rows] for rows in find_rows(split)]

    assert sum(len({*part}) for part in find_groups(GROUPS, 0.1, 0.2)) == len({*GROUPS})
    assert [*map(len, find_groups(np.arange(200) // 4, 0.1, 0.2))] == [140, 20, 40]
    assert all(map(len, find_groups(np.repeat([0, 1, 2], [198, 1, 1]), 0.4, 0.4)))


@pytest.mark.parametrize(("options", "most"), [({"labels": LABELS}, 0), ({"groups": GROUPS}, 12)])
def test_folds_cover_all_samples_once(options, most):
    splits = [split_samples(TRAIN, 0.1, 0.2, fold=f"{number}/4", **options) for number in range(4)]
    tests = [np.flatnonzero(split == "test") for split in splits]
    assert sorted(np.concatenate(tests)) == list(range(200))
    assert max(map(len, tests)) - min(map(len, tests)) <= most
    for split, test in zip(splits, tests, strict=True):
        assert set(split) == {*SPLITS}
        if most:
            assert not {*GROUPS[test]} & {*GROUPS[split != "test"]}
        else:
            assert np.abs(np.bincount(LABELS[test]) - np.array([37.5, 11.25, 1.25])).max() < 1


def test_folds_in_time_have_expanding_windows():
    # Most of one time
    times, before, covered = np.concatenate([TIMES, np.full(300, 10)]), -1, set()
    for number in range(9):
        split = split_samples(np.full(500, "train"), 0.1, 0.2, times=times, fold=f"{number}/9")
        train, val, test = (times[rows] for rows in find_rows(split))
        assert train.max() < val.min() <= val.max() < test.min()
        assert set(times[split == ""]) == {time for time in times if time > test.max()}
        assert len({*train, *val}) > before
        assert not covered & {*test}
        before, covered = len({*train, *val}), covered | {*test}
    assert max(covered) == 99


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fold": "5/5"}, "data.fold: 5/5 is not valid"),
        (
            {"fold": "0/100", "times": TIMES},
            "data.fold: too few samples, groups or times (100) for",
        ),
        ({"groups": np.zeros(200)}, "data: too few samples, groups or times for all splits"),
    ],
)
def test_what_cannot_be_split(options, message):
    assert message in refusal(split_samples, TRAIN, 0.1, 0.2, **options)
