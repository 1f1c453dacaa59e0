"""The user's own files: settings that all kinds of data share, stated once."""

from typing import Any, Literal

from litlab.data.classes import Balance
from litlab.data.files import FileFormat, Policy
from litlab.data.module import ExperimentData
from litlab.data.split import Split
from litlab.types import HalfOpenUnitInterval


class OwnData(ExperimentData):
    """A DataModule that reads tables of the user's.

    Args:
        split_column: Column that says train, val or test.
        group_column: Column of groups, such as patients: each is in one split only. It is no
            input.
        time_column: Column of times or numbers: the latest samples are for the test, those before
            for validation. It is no input.
        cut: Times of `time_column` at which validation and test begin; a single one: the test.
        val_fraction: Fraction of the samples kept for validation, where there is no such split; 0
            for none.
        test_fraction: Fraction of the samples kept for the test, where there is no such split; 0
            for none.
        fold: The samples are divided into folds, and one of them is the test: `0/5` is the first of
            five. With `time_column` training is on what is before it. `fit --folds 5` runs all.
        id_column: Column that names the samples in a file of predictions, beside their rows. It is
            no input.
        bad_rows: Rows that can't be used (no target, text for a number, too many cells, ...):
            `error` names them, `drop` leaves them out and says how many there are.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts
            (`sqrt`); null: as they are. An epoch keeps its length, so samples of rare classes come
            several times, others not in every epoch.
        delimiter: What separates the cells of a CSV file; null: the one of comma, semicolon, tab
            and bar that fits.
        decimal: Decimal sign of the numbers.
        thousands: What stands between groups of three digits, as the comma in 1,129; null: nothing.
        missing: Words that stand for a missing value in any column. In columns of numbers NA, NaN,
            null and None do anyway; elsewhere they are words.
        time_format: How times are written, such as ``%d/%m/%Y``, where days and months could be
            confused.
        **loader: batch_size, seed, drop_last, num_workers, pin_memory, persistent_workers and
            prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid, or two of them exclude each other.
    """

    def __init__(
        self,
        *,
        split_column: str | None = None,
        group_column: str | None = None,
        time_column: str | None = None,
        cut: list[str] = [],  # noqa: B006 - lists are not changed
        val_fraction: HalfOpenUnitInterval = 0.1,
        test_fraction: HalfOpenUnitInterval = 0.2,
        fold: str | None = None,
        id_column: str | None = None,
        bad_rows: Policy = "error",
        balance: Balance | None = None,
        delimiter: str | None = None,
        decimal: Literal[".", ","] = ".",
        thousands: str | None = None,
        missing: list[str] = [],  # noqa: B006
        time_format: str | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        self.split = Split(
            split_column, group_column, time_column, tuple(cut), val_fraction, test_fraction, fold
        )
        self.form = FileFormat(delimiter, decimal, thousands, tuple(missing), time_format)
        self.id_column, self.bad_rows, self.balance = id_column, bad_rows, balance
