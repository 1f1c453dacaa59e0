"""What a checkpoint knows of its table, and rows as a deployed model takes them: in the units of
the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.cells import count_far
from litlab.data.columns import Column
from litlab.data.files import Cells, Frame
from litlab.data.serving import BATCH, Sample, Serving, TensorSpec, make_times, read_rows
from litlab.data.target import find_useless
from litlab.data.target_metadata import TargetMetadata
from litlab.data.user_data import Table
from litlab.errors import UserError
from litlab.util.text import add_to_list

MOST_ROWS = 1_000  # that are sent
_LIKE_NAMES = 0.9  # from this share of different texts on, a column names its rows
_BINS = 32  # of a column of numbers, for networks that embed numbers by bins
_PARTS = ("year", "month", "weekday", "days")  # of a date


@dataclass(frozen=True, kw_only=True)
class TabularMetadata(TargetMetadata):
    """Metadata of a table; what is measured is that of its training rows.

    Args:
        numbers: Inputs that are numbers: columns, and parts of dates.
        mean: Mean of each of them.
        std: Standard deviation of each of them.
        bin_edges: For each of them, standardised, its quantiles in training, in equal shares and
            without repeats, the smallest and largest value included. Of the second inputs 0 and 1.
        indicated: Places of those of them that miss values: each has a second input which says so.
        categories: For each input column of categories those that occur at least twice, the most
            frequent first.
    """

    fixed: ClassVar[tuple[str, ...]] = (*TargetMetadata.fixed, "numbers", "category_columns")
    numbers: list[str]
    mean: list[float]
    std: list[float]
    bin_edges: list[list[float]]
    indicated: list[int]
    categories: dict[str, list[str]]

    def read(self, raw: Frame, where: str, *options: Any) -> Frame:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Read rows as `TargetMetadata.read`, their dates split, and warn of numbers that are far
        from those in training.
        """
        # The columns are those of the file, where a date is one
        rows = super().read(raw, where, *options)
        for name, mean, std, edges in zip(
            self.numbers, self.mean, self.std, self.bin_edges, strict=False
        ):
            if name in rows:  # no part of a date
                count_far(rows[name], [mean + std * edges[0], mean + std * edges[-1]], where)
        return split_dates(rows, {column.name: column for column in self.columns})

    @property
    def category_columns(self) -> list[str]:
        return list(self.categories)

    @property
    def category_sizes(self) -> list[int]:
        return [1 + len(texts) for texts in self.categories.values()]

    @property
    def num_numbers(self) -> int:
        return len(self.numbers) + len(self.indicated)

    def arrange_inputs(self, rows: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Arrange the inputs of some rows as a deployed model takes them.

        Args:
            rows: As of `read_inputs`.

        Returns:
            Numbers, NaN where one is missing, float64 (row, column); and of categories the place of
            each in its list from 1, 0 for one that is missing or was seen less than twice in
            training, int64 (row, column).
        """
        import pandas as pd

        # `get_indexer` returns -1 for what is not in the list
        codes = {
            name: 1 + pd.Index(texts, dtype="string").get_indexer(rows[name])
            for name, texts in self.categories.items()
        }
        # By a frame, which has the right shape, too, where there are no categories
        numbers = np.ascontiguousarray(rows[self.numbers])
        return numbers, pd.DataFrame(codes, rows.index).to_numpy("int64")


def split_dates(rows: Frame, columns: Mapping[str, Column]) -> Frame:
    """Return rows with parts of each date in its place, as numbers: year, month, weekday (from 0,
    Monday), and days since 1970.

    Raises:
        UserError: There is a column of that name.
    """
    for name, column in columns.items():
        if column.kind == "time":
            times = rows[name].dt
            # A missing time would be the smallest int64
            seconds = times.tz_localize(None).astype("datetime64[s]").astype("int64")
            days = (seconds / 86_400).where(rows[name].notna())
            numbers = (times.year, times.month, times.day_of_week, days)
            for suffix, values in zip(_PARTS, numbers, strict=True):
                part = f"{name} {suffix}"
                if part in rows:
                    raise UserError(
                        f"data.dates: a part of {name!r} would be called {part!r}, as a column of "
                        "the table is; rename one of them"
                    )
                rows[part] = values.astype("float64")
            rows = rows.drop(columns=name)
    return rows


def measure(table: Table, where: object) -> dict[str, Any]:
    """Measure the training rows; return what `TabularMetadata` has besides the columns.

    Args:
        table: The table, its dates split.
        where: What messages call it.

    Raises:
        UserError: A column tells nothing, or can't be scaled.
    """
    # Columns that tell nothing are refused, rather than left out without a word
    train = table.inputs[table.split == "train"]
    useless = {name: reason for name in train if (reason := _find_useless(train[name]))}
    # Of a date single parts may be constant, as the year, and are left out. If even the days since
    # 1970 are, so is the date
    dates = {name: name.removesuffix(f" {_PARTS[-1]}") for name in useless}
    wrong = {date: useless[name] for name, date in dates.items() if date in table.columns}
    if wrong:
        reasons = ", ".join(f"{name} {reason}" for name, reason in wrong.items())
        raise UserError(
            f"{where}: nothing can be learned from these columns, in the training rows: {reasons}; "
            f"add {add_to_list('--data.ignore', sorted(wrong))}"
        )
    train = train.drop(columns=list(useless))

    # Numbers, of which some may only count the rows
    numbers = train.select_dtypes("number")
    counting = [name for name in numbers if _counts_rows(numbers[name].dropna())]
    if counting:
        rank_zero_info(
            f"warning: {where}: what counts the rows says nothing of new ones: "
            f"{', '.join(counting)}; leave it out with {add_to_list('--data.ignore', counting)}"
        )

    # Quantiles that come twice, as of a column that is mostly 0, are one edge
    mean, std = numbers.mean(), numbers.std(ddof=0)
    indicated = np.flatnonzero(numbers.isna().any()).tolist()
    scaled = ((numbers - mean) / std).quantile(np.linspace(0, 1, _BINS + 1)).round(5)
    edges = [np.unique(scaled[name]).tolist() for name in numbers]

    # Nothing can be learned of a category that comes once: it counts as one that is missing
    counts = {name: column.value_counts() for name, column in train.select_dtypes("string").items()}
    return {
        "numbers": list(numbers),
        "mean": mean.tolist(),
        "std": std.tolist(),
        "bin_edges": edges + [[0.0, 1.0]] * len(indicated),
        "indicated": indicated,
        "categories": {name: count.index[count > 1].tolist() for name, count in counts.items()},
    }


def _counts_rows(numbers: Cells) -> bool:
    """Return whether numbers are those of the rows in a file, from 0 or 1 on."""
    # The training rows are some of the file's, in order: numbers may be skipped, but not so many
    is_ascending = len(numbers) > 20 and (numbers.diff().iloc[1:] > 0).all()
    return bool(
        is_ascending and numbers.iloc[0] < 20 and (numbers % 1 == 0).all()
        and numbers.iloc[-1] < 2 * len(numbers) + 20
    )  # fmt: skip


def _find_useless(cells: Cells) -> str:
    """Return why a column tells nothing; empty if it may."""
    if cells.dtype == "float64":
        return find_useless(cells)
    # Whether a cell is missing may tell something, too
    present = cells.dropna()
    if present.nunique() + cells.isna().any() < 2:
        return "is constant"
    is_name = present.nunique() > max(_LIKE_NAMES * len(present), 20) or present.is_unique
    return "has another text in (nearly) each row" if is_name else ""


class TabularServing(Serving):
    """Standardises numbers, and notes which are missing; without numbers or categories that input
    has no columns.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind, field, metadata_type = "rows", "rows", TabularMetadata
    mean: Tensor
    std: Tensor
    indicated: Tensor

    def __init__(self, metadata: TabularMetadata) -> None:
        numbers, categories = (BATCH, len(metadata.numbers)), (BATCH, len(metadata.categories))
        meaning = "places in `categories`, from 1; 0 for another one"
        inputs = [
            TensorSpec("numbers", "float64", numbers, "columns `numbers`, NaN where missing"),
            TensorSpec("categories", "int64", categories, meaning),
        ]
        super().__init__(inputs, [metadata.target.spec()])
        self.metadata = metadata
        self.register_numbers(mean=metadata.mean, std=metadata.std)
        self.register_numbers(torch.int64, indicated=metadata.indicated)

    def encode(self, numbers: Tensor, categories: Tensor) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return numbers, float32 (batch, column), and categories, int64 (batch, column)."""
        # A missing number is the mean, which is 0 once scaled
        missing = numbers.isnan()
        scaled = torch.where(missing, 0.0, (numbers - self.mean) / self.std)
        flags = missing.index_select(1, self.indicated)
        return {
            "numbers": torch.cat([scaled.float(), flags.float()], dim=1),
            "categories": categories.long(),
        }

    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        # The flags of missing numbers come behind the numbers
        inputs = batch if isinstance(batch, dict) else batch[0]
        scaled, flags = inputs["numbers"].double().tensor_split([len(self.mean)], dim=1)
        numbers = scaled * self.std + self.mean
        numbers[:, self.indicated] = numbers[:, self.indicated].masked_fill(flags > 0, torch.nan)
        return numbers, inputs["categories"]

    def read(self, sent: Any) -> Sample:
        """Read one row or more."""
        metadata = self.metadata
        rows = metadata.read(read_rows(sent, metadata, "rows", MOST_ROWS), "rows")
        if isinstance(sent, list) and len(rows) < len(sent):  # each is to get an answer
            raise UserError("rows: in one of them everything is null; give a value")
        return Sample(metadata.arrange_inputs(rows))

    def sample_request(self) -> list[dict[str, Any]]:
        """Return a row of means and most frequent categories."""
        metadata = self.metadata
        values = dict(zip(metadata.numbers, metadata.mean, strict=True))
        values |= {name: texts[0] for name, texts in metadata.categories.items()}
        # A date, of which `numbers` has parts alone
        for column in metadata.columns:
            if column.kind == "time":
                (values[column.name],) = make_times(column.zone, metadata.form)
        return [{column.name: values[column.name] for column in metadata.columns}]

    def answer(self, outputs: Mapping[str, np.ndarray], context: dict[str, Any]) -> dict[str, Any]:
        predicted = next(iter(outputs.values()))
        return {"rows": [self.metadata.target.answer(row) for row in predicted]}
