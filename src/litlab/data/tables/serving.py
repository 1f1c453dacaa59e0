"""What a checkpoint knows of its table, and rows as a deployed model takes them: in the units of
the file.
"""

from collections.abc import Mapping, Sized
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from litlab.data.columns import Column, count_unknown, read_columns
from litlab.data.files import (
    Cells,
    FileFormat,
    Frame,
    Policy,
    Source,
    check_columns,
    name_source,
    read_cells,
)
from litlab.data.serving import BATCH, Metadata, Serving, TensorSpec
from litlab.data.target import Target, load_target
from litlab.errors import UserError

LARGEST = 1e16  # standard deviation: float32 holds the squares
_LIKE_NAMES = 0.9  # share of different texts from which on they are names of the rows
_PARTS = ("year", "month", "weekday", "days")  # of a date


@dataclass(frozen=True)
class TabularMetadata(Metadata):
    """Metadata of a table; what is measured is that of its training rows.

    Args:
        columns: The input columns, as the training file has them.
        form: How its cells are written.
        target: What is to be predicted.
        numbers: Inputs that are numbers: columns, and parts of dates.
        mean: Mean of each of them.
        std: Standard deviation of each of them.
        indicated: Places of those of them that miss values: each has a second input which says so.
        categories: For each input column of categories those that occur at least twice, the most
            frequent first.
    """

    fixed: ClassVar[tuple[str, ...]] = ("task", "targets", "names", "numbers", "category_columns")
    columns: list[Column]
    form: FileFormat = field(compare=False)
    target: Target
    numbers: list[str]
    mean: list[float]
    std: list[float]
    indicated: list[int]
    categories: dict[str, list[str]]

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "TabularMetadata":
        columns = [Column(**column) for column in state["columns"]]
        form = FileFormat(**{**state["form"], "missing": tuple(state["form"]["missing"])})
        target = load_target(state["target"])
        return cls(**{**state, "columns": columns, "form": form, "target": target})

    def state_dict(self) -> dict[str, Any]:
        return asdict(self) | {"target": self.target.state_dict()}

    @property
    def task(self) -> str:
        return self.target.task

    @property
    def targets(self) -> list[str]:
        return self.target.columns

    @property
    def names(self) -> list[str]:
        return self.target.names

    @property
    def class_names(self) -> list[str]:
        return self.target.names if self.task == "classification" else []

    @property
    def category_columns(self) -> list[str]:
        return list(self.categories)

    @property
    def category_sizes(self) -> list[int]:
        return [1 + len(texts) for texts in self.categories.values()]

    @property
    def num_numbers(self) -> int:
        return len(self.numbers) + len(self.indicated)

    @property
    def num_outputs(self) -> int:
        return len(self.target.names)

    # Each is a setting of the model for one kind of target, and asked for by that alone.

    @property
    def num_classes(self) -> int:
        return len(self._check_task("classification").names)

    @property
    def label_names(self) -> list[str]:
        return self._check_task("labels").names

    @property
    def target_names(self) -> list[str]:
        return self._check_task("regression").names

    @property
    def target_mean(self) -> list[float]:
        return getattr(self.target, "mean", [])

    @property
    def target_std(self) -> list[float]:
        return getattr(self.target, "std", [])

    def _check_task(self, task: str) -> Target:
        """Refuse a model for a task that is not that of the target."""
        if self.task != task:
            names = ", ".join(self.targets)
            raise UserError(
                f"model: it is for {task}, not for {names}; use --model {self.target.model}, or "
                f"set data.task {task}"
            )
        return self.target

    def lay_out(self, rows: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Lay the inputs of some rows out as a deployed model takes them.

        Args:
            rows: As of `read_inputs`.

        Returns:
            Numbers, NaN where one is missing, float64 (row, column); and of categories the place of
            each in its list from 1, 0 for one that is missing or was seen less than twice in
            training, int64 (row, column).
        """
        import pandas as pd

        places = {
            name: 1 + pd.Index(texts, dtype="string").get_indexer(rows[name])
            for name, texts in self.categories.items()
        }
        numbers = np.ascontiguousarray(rows[self.numbers])
        return numbers, pd.DataFrame(places, rows.index).to_numpy("int64")


def split_dates(rows: Frame, columns: Mapping[str, Column]) -> Frame:
    """Return rows with parts of each date in its place, as numbers: year, month, weekday (from 0,
    Monday), and days since 1970.
    """
    for name, column in columns.items():
        if column.kind == "time":
            times = rows[name].dt
            days = rows[name].dt.tz_localize(None).astype("datetime64[s]").astype("int64") / 86_400
            parts = (times.year, times.month, times.weekday, days.where(rows[name].notna()))
            for part, values in zip(_PARTS, parts, strict=True):
                rows[f"{name} {part}"] = values.astype("float64")
            rows = rows.drop(columns=name)
    return rows


def measure(
    train: Frame, columns: Mapping[str, Column], form: FileFormat, target: Target, where: object
) -> TabularMetadata:
    """Measure the training rows.

    Args:
        train: Inputs, as `split_dates` returns them: float64, or texts.
        columns: The input columns.
        form: How the cells are written.
        target: What is to be predicted.
        where: What messages call the table.

    Raises:
        UserError: A column tells nothing, or can't be scaled.
    """
    useless = {name: reason for name in train if (reason := _find_useless(train[name]))}
    if useless:
        reasons = ", ".join(f"{name} {reason}" for name, reason in useless.items())
        # Of a part of a date the date
        names = {name if name in columns else name.rpartition(" ")[0] for name in useless}
        raise UserError(
            f"{where}: nothing can be learned from these columns, in the training rows: {reasons}; "
            f"add --data.ignore '[{', '.join(sorted(names))}]'"
        )
    numbers = train.select_dtypes("number")
    counts = {name: column.value_counts() for name, column in train.select_dtypes("string").items()}
    return TabularMetadata(
        columns=list(columns.values()),
        form=form,
        target=target,
        numbers=list(numbers),
        mean=numbers.mean().tolist(),
        std=numbers.std(ddof=0).tolist(),
        indicated=np.flatnonzero(numbers.isna().any()).tolist(),
        categories={name: count.index[count > 1].tolist() for name, count in counts.items()},
    )


def _find_useless(cells: Cells) -> str:
    """Return why a column tells nothing; empty if it may."""
    there = cells.dropna()
    if there.nunique() + cells.isna().any() < 2:
        return "is constant"
    if cells.dtype != "float64":
        is_name = there.nunique() > max(_LIKE_NAMES * len(there), 20) or there.is_unique
        return "has another text in (nearly) each row" if is_name else ""
    if len(there) > 20 and there.is_unique and (there.diff().iloc[1:] > 0).all():
        is_count = there.iloc[0] in (0, 1) and (there % 1 == 0).all()
        if is_count and there.iloc[-1] < 2 * len(there) + 20:
            return "counts the rows"
    deviation = there.std(ddof=0)
    is_fit = 1 / LARGEST < deviation < LARGEST
    return "" if is_fit else "has a standard deviation below 1e-16 or above 1e16"


def read_inputs(
    source: Source, known: TabularMetadata, form: FileFormat, setting: str, bad_rows: Policy
) -> tuple[Frame, Frame]:
    """Read the rows that a trained model is to predict, by the columns of its training file.

    Args:
        source: As of `read_cells`.
        known: The columns.
        form: How the cells are written.
        setting: What messages call the source.
        bad_rows: Whether rows that can't be used are errors or left out.

    Returns:
        The inputs, as of `split_dates`, and the cells that they were read from.
    """
    where = name_source(source, setting)
    raw = read_cells(source, form, setting=setting, bad_rows=bad_rows)
    columns = {column.name: column for column in known.columns}
    check_columns(raw, where, dict.fromkeys(columns, "the training file has it"))
    rows = read_columns(raw, columns, form, where, bad_rows=bad_rows)
    for name, texts in known.categories.items():
        count_unknown(rows[name], texts, where)
    return split_dates(rows, columns), raw


def _make_spec(name: str, dtype: str, columns: Sized, what: str) -> TensorSpec:
    return TensorSpec(name, dtype, (BATCH, len(columns)), what)


class TabularServing(Serving):
    """Standardises numbers, and notes which are missing; without numbers or categories that input
    has no columns.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "rows"
    mean: Tensor
    std: Tensor
    indicated: Tensor

    def __init__(self, metadata: TabularMetadata) -> None:
        inputs = [
            _make_spec(
                "numbers", "float64", metadata.numbers, "columns `numbers`, NaN where missing"
            ),
            _make_spec(
                "categories",
                "int64",
                metadata.categories,
                "places in `categories`, from 1; 0 for another one",
            ),
        ]
        super().__init__(inputs, [metadata.target.spec()])
        self.metadata = metadata
        self.register_buffer("mean", torch.tensor(metadata.mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(metadata.std, dtype=torch.float64))
        self.register_buffer("indicated", torch.tensor(metadata.indicated, dtype=torch.int64))

    def encode(self, numbers: Tensor, categories: Tensor) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return numbers, float32 (batch, column), and categories, int64 (batch, column)."""
        missing = numbers.isnan()
        scaled = torch.where(missing, 0.0, (numbers - self.mean) / self.std)
        flags = missing.index_select(1, self.indicated)
        return {
            "numbers": torch.cat([scaled.float(), flags.float()], dim=1),
            "categories": categories.long(),
        }

    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        inputs = batch if isinstance(batch, dict) else batch[0]
        scaled, flags = inputs["numbers"].double().tensor_split([len(self.mean)], dim=1)
        numbers = scaled * self.std + self.mean
        numbers[:, self.indicated] = numbers[:, self.indicated].masked_fill(flags > 0, torch.nan)
        return numbers, inputs["categories"]

    def facts(self) -> dict[str, Any]:
        """Return the metadata: the columns in order, the categories of each, the classes, ..."""
        return self.metadata.state_dict()

    def unit(self) -> Tensor:
        return torch.tensor(self.metadata.target_std or 1.0)

    def example(self) -> tuple[Tensor, ...]:
        """Return two rows of mean numbers and unknown categories."""
        return self.mean.repeat(2, 1), torch.zeros(
            2, len(self.metadata.categories), dtype=torch.int64
        )
