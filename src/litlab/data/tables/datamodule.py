"""Rows of a table, for training, evaluation and prediction."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from litlab.data.columns import Column, fit_column, read_columns, refuse_dates
from litlab.data.files import Frame, UserFile, check_columns, name_source, read_cells
from litlab.data.generated import make_customers
from litlab.data.own import OwnData
from litlab.data.predictions import name_rows, write_outputs
from litlab.data.split import SPLITS
from litlab.data.tables.serving import (
    LARGEST,
    TabularMetadata,
    TabularServing,
    measure,
    read_inputs,
    split_dates,
)
from litlab.data.target import Numbers, Target, Task, fit_classes, fit_labels
from litlab.errors import UserError
from litlab.types import PositiveInt


class EncodedRows(TensorDataset):
    """Rows in memory: numbers, categories and, but in prediction, targets; indexed by a tensor, it
        returns a batch.

    A batch is a dict of ``numbers``, float32 (batch, column), and ``categories``, int64 (batch,
    column); and the target. An index may be that of a row plus a multiple of their number.
    """

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    def __getitem__(self, index: Tensor) -> Any:
        rows = (index % len(self)).to(self.device, non_blocking=True)
        numbers, categories, *target = (tensor.index_select(0, rows) for tensor in self.tensors)
        inputs = {"numbers": numbers, "categories": categories}
        return (inputs, *target) if target else inputs


class TabularData(OwnData):
    """Rows of numbers and categories with a target to classify or regress: your own file, or
        generated.

    A batch is (inputs, target). Inputs are a dict that the network gets as keyword arguments:
    ``numbers``, float32 of shape (batch, column), standardised by the training rows, and
    ``categories``, int64 of shape (batch, column). One of them may have no columns. The target is
    int64 of shape (batch,) in classification, float64 of shape (batch, target) in regression, in
    the units of the file, and float32 of shape (batch, label), 0 or 1, for labels. In prediction a
    batch is the dict alone.

    A missing number is the mean of the training rows; columns that miss some in training have a
    second input which says so. A category that is missing, or came less than twice in training, has
    number 0, the others are counted from 1.

    Args:
        dataset: `csv` for your own file, `generated` for made-up customers (to predict `churn` or
            `spend`).
        path: `csv`: the file, of CSV (.gz too), Parquet, Excel or JSON lines; in Python a pandas
            DataFrame, too.
        target: Column to predict; several in regression, or one for each label.
        task: What to do with it. null: a column of words, or of at most 20 different numbers, is
            classified, any other regressed. `labels`: several of them may be true.
        label_separator: What stands between the labels in a single column; null: each label has a
            column of its own, with 1 or 0, or yes or no.
        categories: Columns of numbers that stand for categories, such as zip codes; those of words,
            or of a single number, are categories anyway.
        dates: Columns of dates, which become numbers: year, month, weekday, and days since 1970.
        ignore: Columns that are left out.
        batch_size: Rows per batch and process.
        **options: What reads and splits the rows, as of `OwnData`.

    Raises:
        UserError: A value is not valid; later: the data is missing or wrong.
    """

    item, kind = "rows", "table"
    metadata_type = TabularMetadata

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        target: list[str] | str,
        task: Task | None = None,
        label_separator: str | None = None,
        categories: list[str] = [],  # noqa: B006 - lists are not changed
        dates: list[str] = [],  # noqa: B006
        ignore: list[str] = [],  # noqa: B006
        batch_size: PositiveInt = 64,
        **options: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, **options)
        # Not for the logger: the model has settings of the same names. A frame can't be in a
        # checkpoint.
        self.save_hyperparameters(logger=False, ignore=["path"])
        self.choose_source(dataset, path)
        self.targets = [target] if isinstance(target, str) else list(target)
        if label_separator is not None and len(self.targets) > 1:
            raise UserError(
                "data.label_separator: it is for a single column of labels; leave it out"
            )
        several = "regression" if len(self.targets) > 1 else None
        self.task = task or ("labels" if label_separator else several)

    # ---- from a file to a table

    @property
    def table(self) -> dict[str, Frame]:
        """The rows of each split, nothing scaled yet: inputs, and the columns of the target."""
        return {split: self._table.rows(split) for split in SPLITS}

    @cached_property
    def _table(self) -> "Table":
        """The rows of all splits, and what the columns are.

        Raises:
            UserError: The file or a column is missing or wrong, or there are bad rows which may not
                be left out.
        """
        settings, where = self.hparams, name_source(self.path, "data.path")
        source = make_customers(self.targets) if self.generated else self.path
        raw = read_cells(source, self.form, bad_rows=self.bad_rows)

        # What each column is: a setting says so, or its cells do
        kinds: dict[str, Any] = dict.fromkeys(raw, "input")
        kinds |= dict.fromkeys(settings["categories"], "category")
        kinds |= dict.fromkeys(settings["dates"], "time")
        of_task = {"classification": "category", "regression": "number", "labels": "category"}
        kinds |= dict.fromkeys(self.targets, of_task.get(str(self.task), "target"))
        kinds |= self.split.columns
        check_columns(raw, where, dict.fromkeys(kinds, "correct it, or the setting that names it"))
        apart = {*self.targets, *self.split.columns}
        kinds = {
            name: kind
            for name, kind in kinds.items()
            if name in apart or name not in (*settings["ignore"], self.id_column)
        }
        columns = {
            name: fit_column(raw[name], kind, self.form, where) for name, kind in kinds.items()
        }

        # All cells are read before a bad row is left out, so that one message has all of them. A
        # sample may have no label at all
        needed = apart if settings["label_separator"] is None else {*self.split.columns}
        rows = read_columns(raw, columns, self.form, where, needed=needed, bad_rows=self.bad_rows)
        inputs = {name: column for name, column in columns.items() if name not in apart}
        refuse_dates(rows, inputs, where)
        is_numbers = columns[self.targets[0]].kind == "number"
        labels = None
        if not is_numbers and self.task != "labels":
            labels = rows[self.targets[0]].factorize(sort=True)[0]
        split = self.split.divide(rows, labels)

        train = rows[split == "train"]
        if is_numbers:
            numbers = train[self.targets]
            target: Target = Numbers(
                self.targets, numbers.mean().tolist(), numbers.std(ddof=0).tolist()
            )
            check_numbers(numbers, where)
        elif self.task == "labels":
            target = fit_labels(train, self.targets, settings["label_separator"], where)
        else:
            target = fit_classes(rows, self.targets[0], split, where)
        return Table(
            split_dates(rows[list(inputs)], inputs), rows[self.targets], split, inputs, target
        )

    # ---- what models and messages are told; before `setup`, too

    @property
    def description(self) -> str:
        """The table in one line; with the numbers of rows after `setup`."""
        known = self.known
        inputs = f"{len(known.numbers)} numbers and {len(known.categories)} categories"
        return self.describe(f"rows of {inputs}, {known.task} of {', '.join(known.targets)}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever a cell or a split does."""
        from pandas.util import hash_pandas_object

        hash_rows: Any = hash_pandas_object
        splits = [rows.assign(**{"": name}) for name, rows in self.table.items()]
        hashes = sum(int(hash_rows(rows, index=False).sum()) for rows in splits)
        return f"{hashes % 2**64:016x}"

    # ---- from a table to memory

    def open(self, stage: str | None) -> TabularMetadata:
        table = self._table
        counts = {split: int((table.split == split).sum()) for split in SPLITS}
        self.sizes = {split: count for split, count in counts.items() if count}
        metadata = measure(
            table.inputs[table.split == "train"], table.columns, self.form, table.target,
            self.source_name,
        )  # fmt: skip
        if stage in ("fit", None):
            from litlab.data.tables.baselines import warn_of_leaks

            warn_of_leaks(table.rows("train"), table.rows("test"), self.targets, self.source_name)
        return metadata

    def samples(self, split: str) -> EncodedRows:
        rows = self._table.rows(split)
        return self._encode(rows, torch.from_numpy(self.known.target.encode(rows)))

    def _encode(self, rows: Frame, *target: Tensor) -> EncodedRows:
        numbers, categories = map(torch.tensor, self.known.lay_out(rows))
        tensors = [*self.serving().encode(numbers, categories).values(), *target]
        device = self.choose_device(sum(tensor.nbytes for tensor in tensors))
        return EncodedRows(*(tensor.to(device) for tensor in tensors))

    def labels(self, split: str) -> Tensor | None:
        target = self.known.target.encode(self._table.rows(split))
        return torch.from_numpy(target) if self.class_names else None

    def serving(self) -> TabularServing:
        return TabularServing(self.metadata)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of scikit-learn's methods with the same training rows, see
        `score_baselines`.
        """
        from litlab.data.tables.baselines import score_baselines

        return score_baselines(self._table.rows("train"), self._table.rows("test"), self.known)

    # ---- prediction

    def open_input(self, source: str) -> EncodedRows:
        rows, raw = read_inputs(source, self.metadata, self.form, "--input", self.bad_rows)
        self._predicted = name_rows(raw.loc[rows.index], self.id_column, "--input")
        return self._encode(rows)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per row of `predict_input`: class and probabilities, or a number
        for each target.

        Args:
            outputs: Of the batches in order: probabilities, shape (batch, class), or predictions,
                (batch, target).
            path: The file; one that is there is replaced.
        """
        predicted = torch.cat([output.cpu() for output in outputs])
        write_outputs(Path(path), self._predicted, self.metadata.target, predicted)


@dataclass(frozen=True)
class Table:
    """The rows of a table, nothing scaled yet.

    Args:
        inputs: As of `split_dates`.
        outcomes: The columns of the target, as they were read.
        split: The split of each row, str of shape (row,).
        columns: The columns of the inputs.
        target: What is to be predicted.
    """

    inputs: Frame
    outcomes: Frame
    split: np.ndarray
    columns: dict[str, Column]
    target: Target

    def rows(self, split: str) -> Frame:
        """Return inputs and outcomes of a split."""
        import pandas as pd

        return pd.concat([self.inputs, self.outcomes], axis=1)[self.split == split]


def check_numbers(targets: Frame, where: str) -> None:
    """Refuse targets that are constant, or can't be scaled."""
    for name, cells in targets.items():
        deviation = cells.std(ddof=0)
        if not 1 / LARGEST < deviation < LARGEST:
            raise UserError(
                f"{where}: nothing can be learned from column {name}: in the training rows it is "
                "constant, or has a standard deviation below 1e-16 or above 1e16; use another "
                "target"
            )
