"""What a checkpoint knows of its table, and rows as a deployed model takes them: in the units of
the file.
"""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from litlab.data.frames import Column, FileFormat, Frame, Policy, Source, read_table
from litlab.data.serving import BATCH, ClassMetadata, Serving, TensorSpec, class_outputs
from litlab.errors import UserError

Task = Literal["classification", "regression"]
_LARGEST = 1e16  # standard deviation: float32 holds the squares


@dataclass(frozen=True)
class TabularMetadata(ClassMetadata):
    """Metadata of a table; what is measured is that of its training rows. In regression there are
    no classes.

    Args:
        targets: Columns to predict.
        target_mean: Mean of each target; empty in classification.
        target_std: Standard deviation of each target, likewise.
        numbers: Input columns of numbers.
        mean: Mean of each of them.
        std: Standard deviation of each of them.
        indicated: Places of those of them that miss values: each has a second input which says so.
        categories: For each input column of categories those that occur at least twice, the most
            frequent first.
    """

    fixed: ClassVar[tuple[str, ...]] = (
        "task",
        "targets",
        "class_names",
        "numbers",
        "category_columns",
    )
    targets: list[str]
    target_mean: list[float]
    target_std: list[float]
    numbers: list[str]
    mean: list[float]
    std: list[float]
    indicated: list[int]
    categories: dict[str, list[str]]

    @property
    def task(self) -> Task:
        return "classification" if self.class_names else "regression"

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
        return len(self.class_names or self.targets)

    @property
    def num_classes(self) -> int:
        self._check_task("classification", "Regressor")
        return len(self.class_names)

    @property
    def target_names(self) -> list[str]:
        self._check_task("regression", "Classifier")
        return self.targets

    def _check_task(self, task: Task, other: str) -> None:
        """Refuse a model for a task that is not that of the target."""
        if self.task != task:
            names = ", ".join(self.targets)
            raise UserError(
                f"model: it is for {task}, not for {names}; use --model {other}, or "
                f"set data.task {task}"
            )

    def lay_out(self, rows: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Lay the inputs of some rows out as a deployed model takes them.

        Args:
            rows: Columns of numbers, float64, and of categories, texts.

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
        return np.ascontiguousarray(rows[self.numbers]), pd.DataFrame(places, rows.index).to_numpy(
            "int64"
        )

    def lay_out_target(self, rows: Frame) -> np.ndarray:
        """Return the classes of some rows, int64 of shape (row,), or the targets, float32 of shape
        (row, target).
        """
        if self.class_names:
            return rows[self.targets[0]].cat.codes.to_numpy("int64")
        return rows[self.targets].to_numpy("float32")


def measure(train: Frame, targets: list[str], where: object) -> TabularMetadata:
    """Measure the training rows.

    Args:
        train: Columns of numbers, float64, or texts; a target that is to be classified is a pandas
            category.
        targets: Columns to predict.
        where: What messages call the table.

    Raises:
        UserError: A column tells nothing, or can't be scaled.
    """
    useless = [name for name in train.columns if _is_useless(train[name])]
    if useless:
        raise UserError(
            f"{where}: nothing can be learned from column {', '.join(useless)}: in the training "
            "rows it is constant, has another text in each, or a standard deviation below 1e-16 or "
            "above 1e16; add it to data.ignore, or use another target"
        )
    numbers = train.select_dtypes("number")
    mean, std = numbers.mean(), numbers.std(ddof=0)
    regressed = [name for name in targets if name in numbers]
    inputs = [name for name in numbers if name not in targets]
    counts = {name: column.value_counts() for name, column in train.select_dtypes("string").items()}
    return TabularMetadata(
        class_names=[] if regressed else train[targets[0]].cat.categories.tolist(),
        targets=targets,
        target_mean=mean[regressed].tolist(),
        target_std=std[regressed].tolist(),
        numbers=inputs,
        mean=mean[inputs].tolist(),
        std=std[inputs].tolist(),
        indicated=np.flatnonzero(numbers[inputs].isna().any()).tolist(),
        categories={name: count.index[count > 1].tolist() for name, count in counts.items()},
    )


def _is_useless(column: Column) -> bool:
    """Return whether a column is constant, has another text in each, or can't be scaled."""
    if column.dtype != "float64":
        return column.dropna().is_unique or column.nunique(dropna=False) == 1
    return not 1 / _LARGEST < column.std(ddof=0) < _LARGEST


def read_rows(
    source: Source, known: TabularMetadata, form: FileFormat, setting: str, bad_rows: Policy
) -> Frame:
    """Read the rows that a trained model is to predict; columns that it does not know are left out.

    Args:
        source: As of `read_table`.
        known: The columns.
        form: How the cells are written.
        setting: What messages call the source.
        bad_rows: Whether rows that can't be used are errors or left out.

    Returns:
        Its columns of numbers, float64, and of categories, texts.
    """
    kinds = dict.fromkeys(known.numbers, "number") | dict.fromkeys(known.categories, "category")
    return read_table(source, kinds, form, setting=setting, bad_rows=bad_rows)


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
        outputs = [
            _make_spec(
                "predicted",
                "float32",
                metadata.targets,
                "columns `targets`, in the units of the file",
            )
        ]
        super().__init__(
            inputs, class_outputs(metadata.class_names) if metadata.class_names else outputs
        )
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
