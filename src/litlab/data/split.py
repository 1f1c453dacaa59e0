"""Which samples are for training, validation and test: drawn by class, by group or by time, or a
fold of them.

All draws are the same for every seed of a run.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from litlab.data.files import Cells, Frame
from litlab.errors import UserError

SPLITS = ("train", "val", "test")
# What a column or the name of a file may say, in any case
SPLIT_NAMES = dict(zip(SPLITS, SPLITS, strict=True)) | {
    "training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test",
}  # fmt: skip


@dataclass(frozen=True)
class Split:
    """What decides which samples are for training, validation and test.

    Args:
        column: Column that says train, val or test.
        group: Column of groups: each is in one split only.
        time: Column of times or numbers: the latest samples are for the test, those before for
            validation.
        cut: Times, of the time column, at which validation and test begin, or the test alone.
        val: Share for validation, where there is none yet.
        test: Share for the test, where there is none yet.
        fold: As of `read_fold`.

    Raises:
        UserError: Two of them exclude each other, or one is not valid.
    """

    column: str | None = None
    group: str | None = None
    time: str | None = None
    cut: tuple[str, ...] = ()
    val: float = 0.1
    test: float = 0.2
    fold: str | None = None

    def __post_init__(self) -> None:
        if self.group and (self.time or self.cut):
            raise UserError(
                "data.group_column, data.time_column: each of them splits the rows; set one"
            )
        if self.cut and (self.fold or not self.time or len(self.cut) > 2):
            raise UserError(
                "data.cut: it is one time or two of data.time_column, and excludes data.fold; set "
                "--data.time_column, and leave --data.fold out"
            )
        if self.fold is not None:
            read_fold(self.fold)

    @property
    def columns(self) -> dict[str, str]:
        """What the columns are that it needs, by name, as `fit_column` takes it."""
        named = {self.column: "category", self.group: "category", self.time: "order"}
        return {name: kind for name, kind in named.items() if name is not None}

    def divide(
        self, rows: Frame, labels: np.ndarray | None = None, predefined: np.ndarray | None = None
    ) -> np.ndarray:
        """Divide rows.

        Args:
            rows: The columns that it needs, read.
            labels: As of `split_samples`.
            predefined: As of `split_samples`; None: what the split column says, or train for all.

        Returns:
            As `split_samples`.

        Raises:
            UserError: As `split_samples`; the split column says something else; or a group is in
                two splits.
        """
        # What the split column says, row by row
        if self.column is not None:
            words = rows[self.column].astype(str).str.lower()
            names: Cells = words.map(SPLIT_NAMES)
            wrong, predefined = rows[self.column][names.isna()], names.to_numpy(object)
            if len(wrong):
                raise UserError(
                    f"data.split_column: row {wrong.index[0]} says {wrong.iloc[0]!r}; write train, "
                    "val or test"
                )
            if not names.eq("train").any():
                raise UserError("data.split_column: no row is for train; mark the training rows")
        if predefined is None:
            predefined = np.full(len(rows), "train")
        # A split column without the word "test" means that there is to be no test
        has_test = self.column is not None or "test" in predefined

        # What is missing is cut off at times, or drawn
        if self.cut:
            return self._cut(rows[self.time], predefined)
        groups = rows[self.group].to_numpy(object) if self.group else None
        split = split_samples(
            predefined,
            self.val,
            0.0 if has_test else self.test,
            labels=labels,
            groups=groups,
            times=rows[self.time].to_numpy() if self.time else None,
            fold=self.fold,
        )
        # A split column or folders may have put a group into two splits
        if groups is not None:
            check_groups(groups, split)
        return split

    def _cut(self, times: Cells, predefined: np.ndarray) -> np.ndarray:
        import pandas as pd

        # Cuts come from YAML as texts, and are of the type of the column
        is_number = pd.api.types.is_numeric_dtype(times)
        cuts = pd.Series(self.cut, dtype=object)
        if is_number:
            begins: Cells = pd.to_numeric(cuts, errors="coerce")
        else:
            begins = pd.to_datetime(cuts, errors="coerce", format="ISO8601", utc=True)
            times = pd.to_datetime(times, utc=True)  # times with and without a zone don't compare
        if begins.isna().any() or not begins.is_monotonic_increasing:
            raise UserError(
                f"data.cut: {', '.join(map(str, self.cut))} is not valid; give "
                f"{'numbers' if is_number else 'times such as 2024-01-31'}, the earlier first"
            )

        # Two cuts begin val and test, a single one the test. What is behind the second cut is also
        # behind the first: the later one overwrites
        names = SPLITS[-len(self.cut) :]
        split = predefined.astype(object)
        for name, begin in zip(names, begins, strict=True):
            split[times >= begin] = name
        for name in ("train", *names):
            if name not in split:
                raise UserError(
                    f"data.cut: no sample is left for {name}; the samples are from {times.min()} "
                    f"to {times.max()}: cut them there"
                )
        return split


def check_groups(groups: np.ndarray, split: np.ndarray) -> None:
    """Refuse a group that is in two splits."""
    import pandas as pd

    is_used = split != ""
    of_group: Any = pd.Series(split[is_used]).groupby(groups[is_used])
    several = of_group.nunique()
    several = several[several > 1]
    if len(several):
        name = several.index[0]
        raise UserError(
            f"data.group_column: group {name!r} is in {' and '.join(of_group.unique()[name])} "
            f"(such groups: {len(several):,}); give each of them to one split"
        )


def read_fold(fold: str) -> tuple[int, int]:
    """Return number and count of a fold such as "0/5", the first of five.

    Raises:
        UserError: It is not valid.
    """
    number, _, count = fold.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count) > 1):
        raise UserError(
            f"data.fold: {fold} is not valid; give its number, from 0, and how many there are: 0/5"
        )
    return int(number), int(count)


def split_samples(
    predefined: np.ndarray,
    val_fraction: float,
    test_fraction: float,
    *,
    labels: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
    fold: str | None = None,
) -> np.ndarray:
    """Divide samples.

    Args:
        predefined: The split that each sample has so far, str of shape (sample,). What is missing
            is taken from train.
        val_fraction: Share of the training samples for validation, where there is none yet.
        test_fraction: Share of the training samples for the test, where there is none yet.
        labels: Class of each sample, int64 of shape (sample,): each split gets its share of all
            classes.
        groups: Group of each sample, (sample,): each group is in one split.
        times: Time of each sample, (sample,): the latest are for the test, those before for
            validation.
        fold: As of `read_fold`: the training samples make so many folds, one of which is the test.
            By time, a fold is a block, and the training is on all before it. A test split that is
            there already is left out.

    Returns:
        The split of each sample, str of shape (sample,); empty where it is left out.

    Raises:
        UserError: There are fewer samples, groups or times than splits, or than folds.
    """
    # As texts of any length: numpy would cut "train" to the longest one that is there
    split = predefined.astype(object)
    if fold is not None:
        split[split == "test"] = ""

    # Only training samples are divided. All below is of them: `train` are their numbers
    train = np.flatnonzero(split == "train")
    of_train = [None if values is None else values[train] for values in (labels, groups, times)]
    unit = _arrange(len(train), *of_train)

    # A fold is a block of units. In time there is one block more, -1: the first one is for training
    # alone, and what comes after the fold is unused, as a forecast can't have learned from it.
    if fold is not None:
        number, count = read_fold(fold)
        first = int(times is not None)
        units = 1 + unit.max(initial=-1)
        if units < count + first:
            raise UserError(
                f"data.fold: too few samples, groups or times ({units}) for {count} folds; set "
                "fewer"
            )
        block = unit * (count + first) // units - first
        split[train[block == number]] = "test"
        if times is not None:
            split[train[block > number]] = ""

    # A split that is missing is taken from the end of what is left, the test before validation: in
    # time it is the latest.
    for name, fraction in (("test", test_fraction), ("val", val_fraction)):
        if fraction and name not in split:
            is_left = split[train] == "train"
            # The share is of all training samples, so that it is the same whatever was taken
            # before. But the first folds in time have few samples left: there it is of those
            has_block = fold is not None and times is not None
            count = is_left.sum() if has_block else len(train)
            begin = _find_end(unit[is_left], fraction * count)
            split[train[is_left & (unit >= begin)]] = name
    return split


def _arrange(
    count: int, labels: np.ndarray | None, groups: np.ndarray | None, times: np.ndarray | None
) -> np.ndarray:
    """Find the units that samples are divided by: single samples, groups or times.

    Returns:
        Number of the unit of each sample, int64 of shape (sample,): the first are for training, the
            last for the test.
    """
    import pandas as pd

    if times is not None:  # samples of the same time stay together
        return np.unique(times, return_inverse=True)[1]
    generator = np.random.default_rng(0)  # not of the run's seed: all runs have the same test
    if groups is not None:
        different, unit = np.unique(groups, return_inverse=True)
        return generator.permutation(len(different))[unit]

    # Spread each class evenly over [0, 1), in random order: any cut then has its share of all
    # classes. Of a class of four they are at 0, 1/4, 2/4 and 3/4, moved by a random offset of the
    # class, or all classes would begin together. A class's only sample comes first, at 0, as it is
    # for training.
    order = generator.permutation(count)
    label = pd.Series(0 if labels is None else labels[order], range(count))
    of_class = label.groupby(label)
    size: Any = of_class.transform("size")
    offset = generator.random(1 + label.max())[label] * (size > 1)
    position = (of_class.cumcount() + offset) / size
    # Samples by position; the inverse of that permutation is each sample's number in it
    return order[np.argsort(position)].argsort()


def _find_end(unit: np.ndarray, count: float) -> int:
    """Return the unit from which on there are about `count` samples: one unit at least, but never
    all of them.
    """
    units, sizes = np.unique(unit, return_counts=True)
    if len(units) < 2:
        raise UserError(
            "data: too few samples, groups or times for all splits; add some, or set "
            "--data.val_fraction 0, or --data.test_fraction 0"
        )
    after = sizes[::-1].cumsum()[::-1]  # samples of each unit and those behind it
    # From the second unit on, so that one is left: the begin that comes nearest to the count
    return int(units[1 + np.abs(after[1:] - count).argmin()])
