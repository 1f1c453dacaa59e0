"""Splits and folds: disjoint, whole, in proportion."""

import numpy as np
import pytest

from litlab.data.split import SPLITS, split_samples
from litlab.errors import UserError

TRAIN = np.full(200, "train")
LABELS = np.repeat([0, 1, 2], [150, 45, 5])
GROUPS = np.arange(200) ** 2 % 31
TIMES = np.arange(200) * 37 % 100


def find_rows(split):
    return [np.flatnonzero(split == name) for name in SPLITS]


def test_each_split_has_its_share_of_all_classes():
    train, val, test = find_rows(split_samples(TRAIN, 0.1, 0.2, labels=LABELS))
    assert (len(train), len(val), len(test)) == (140, 20, 40)
    for part in (train, val, test):
        assert np.abs(np.bincount(LABELS[part], minlength=3) - len(part) * np.array([0.75, 0.225, 0.025])).max() <= 1
    again = split_samples(TRAIN, 0.1, 0.2, labels=LABELS)
    assert np.array_equal(np.flatnonzero(again == "test"), test)


def test_what_is_given_stays():
    given = np.repeat(["train", "val", "test"], [150, 20, 30])
    assert split_samples(given, 0.4, 0.4).tolist() == given.tolist()
    given = np.repeat(["train", "test"], [150, 50])
    split = split_samples(given, 0.1, 0.2)
    assert (split[150:] == "test").all()
    assert (split == "val").sum() == 15
    fold = split_samples(given, 0.1, 0.2, fold="0/3")
    assert (fold[150:] == "").all()  # the folds are of the training samples
    assert (fold == "test").sum() == 50


def test_groups_are_whole_and_as_near_to_the_shares_as_they_can_be():
    parts = [{*GROUPS[rows]} for rows in find_rows(split_samples(TRAIN, 0.1, 0.2, groups=GROUPS))]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len({*GROUPS})
    units = np.repeat(np.arange(100), 3)
    train, val, test = find_rows(split_samples(np.full(300, "train"), 0.1, 0.25, groups=units))
    assert (len(train), len(val), len(test)) == (195, 30, 75)
    units = np.repeat(["a", "b", "c"], [100, 1, 1])
    assert all(len(rows) for rows in find_rows(split_samples(np.full(102, "train"), 0.4, 0.4, groups=units)))


@pytest.mark.parametrize("options", [{}, {"labels": LABELS}, {"groups": GROUPS}])
def test_folds_cover_all_samples_once(options):
    splits = [split_samples(TRAIN, 0.1, 0.2, fold=f"{number}/4", **options) for number in range(4)]
    tests = [np.flatnonzero(split == "test") for split in splits]
    assert sorted(np.concatenate(tests)) == list(range(200))
    assert max(map(len, tests)) - min(map(len, tests)) <= (12 if "groups" in options else 0)
    for split, test in zip(splits, tests, strict=True):
        assert set(split) == {*SPLITS}
        if "labels" in options:
            assert np.abs(np.bincount(LABELS[test]) - np.array([37.5, 11.25, 1.25])).max() < 1
        if "groups" in options:
            assert not {*GROUPS[test]} & {*GROUPS[split != "test"]}


def test_folds_in_time_have_expanding_windows():
    uneven = np.concatenate([TIMES, np.full(300, 10)])  # most of one time
    for times, folds in ((TIMES, 4), (uneven, 9)):
        before, covered = -1, set()
        for number in range(folds):
            split = split_samples(np.full(len(times), "train"), 0.1, 0.2, times=times, fold=f"{number}/{folds}")
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
        ({"fold": "0/1"}, "data.fold: 0/1 is not valid"),
        ({"fold": "0/201"}, "data.fold: 200 samples, groups or times are too few for 201 folds"),
        ({"fold": "0/100", "times": TIMES}, "data.fold: 100 samples, groups or times are too few for 100 folds"),
        ({"groups": np.zeros(200)}, "data: too few samples, groups or times for all splits"),
    ],
)
def test_what_cannot_be_split(options, message):
    with pytest.raises(UserError, match=f"^{message}"):
        split_samples(TRAIN, 0.1, 0.2, **options)
