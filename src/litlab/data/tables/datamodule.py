"""Rows of a table, for training, evaluation and prediction."""

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from litlab.data.columns import refuse_dates
from litlab.data.files import Frame, UserFile, check_columns
from litlab.data.generated import make_customers
from litlab.data.split import SPLITS
from litlab.data.tables.serving import TabularMetadata, TabularServing, measure, split_dates
from litlab.data.user_data import Table, UserData
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
        positions = (index % len(self)).to(self.device, non_blocking=True)
        batch = (tensor.index_select(0, positions) for tensor in self.tensors)
        numbers, categories, *target = batch
        inputs = {"numbers": numbers, "categories": categories}
        return (inputs, *target) if target else inputs


class TabularData(UserData):
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
        categories: Columns of numbers that stand for categories, such as zip codes; those of words,
            or of a single number, are categories anyway.
        dates: Columns of dates, which become numbers: year, month, weekday, and days since 1970.
        ignore: Columns that are left out.
        batch_size: Rows per batch and process.
        **options: What reads and splits the rows, as of `UserData`.

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
        categories: list[str] = [],  # noqa: B006 - lists are not changed
        dates: list[str] = [],  # noqa: B006
        ignore: list[str] = [],  # noqa: B006
        batch_size: PositiveInt = 64,
        **options: Any,
    ) -> None:
        super().__init__(target=target, batch_size=batch_size, **options)
        # Not for the logger: the model has settings of the same names. A frame can't be in a
        # checkpoint.
        self.save_hyperparameters(logger=False, ignore=["path"])
        self.choose_source(dataset, path)

    # ---- from a file to a table

    @property
    def table(self) -> dict[str, Frame]:
        """The rows of each split, nothing scaled yet: inputs, and the columns of the target."""
        return {split: self._table.select(split) for split in SPLITS}

    @cached_property
    def _table(self) -> Table:
        """The rows of all splits, and what the columns are.

        Raises:
            UserError: As `read_cells` and `UserData.fit_table`.
        """
        settings = self.hparams
        source = make_customers(self.targets) if self.generated else self.path
        raw = self.read_cells(source, "data.path")
        check_columns(raw, self.where, dict.fromkeys(settings["ignore"], "correct data.ignore"))
        # Every column is an input, in the order of the file; `fit_table` takes out the target and
        # what splits
        kinds: dict[str, Any] = dict.fromkeys(
            raw.columns.difference(settings["ignore"], sort=False), "input"
        )
        kinds |= dict.fromkeys(settings["categories"], "category")
        kinds |= dict.fromkeys(settings["dates"], "time")
        table = self.fit_table(raw, kinds)
        refuse_dates(table.inputs, table.columns, self.where)
        return replace(table, inputs=split_dates(table.inputs, table.columns))

    # ---- what models and messages are told; before `setup`, too

    @property
    def description(self) -> str:
        """The table in one line; with the numbers of rows after `setup`."""
        metadata = self.facts
        inputs = f"{len(metadata.numbers)} numbers and {len(metadata.categories)} categories"
        return self.describe(f"rows of {inputs}, {metadata.task} of {', '.join(metadata.targets)}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever a cell or a split does."""
        from pandas.util import hash_pandas_object

        hash_rows: Any = hash_pandas_object
        # A sum, so that the order of rows does not matter; no column can be called ""
        splits = [rows.assign(**{"": name}) for name, rows in self.table.items()]
        hashes = sum(int(hash_rows(rows, index=False).sum()) for rows in splits)
        return f"{hashes % 2**64:016x}"

    # ---- from a table to memory

    def open(self, stage: str | None) -> TabularMetadata:
        # A split without rows is none
        self.sizes = {split: len(rows) for split, rows in self.table.items() if len(rows)}
        return self._measured

    @cached_property
    def _measured(self) -> TabularMetadata:
        """What the training rows say; warnings come once, however often the data are opened."""
        from litlab.data.tables.baselines import warn_of_leaks

        table = self._table
        metadata = TabularMetadata(**self.describe_columns(table), **measure(table, self.where))
        warn_of_leaks(table.select("train"), table.select("test"), self.targets, self.where)
        return metadata

    def samples(self, split: str) -> EncodedRows:
        rows = self._table.select(split)
        return self._encode(rows, torch.from_numpy(self.facts.target.encode(rows)))

    def _encode(self, rows: Frame, *target: Tensor) -> EncodedRows:
        # As an exported model does it, so that both have the same inputs
        numbers, categories = map(torch.tensor, self.facts.arrange_inputs(rows))
        tensors = [*self.serving().encode(numbers, categories).values(), *target]
        device = self.choose_device(sum(tensor.nbytes for tensor in tensors))
        return EncodedRows(*(tensor.to(device) for tensor in tensors))

    def labels(self, split: str) -> Tensor | None:
        target = self.facts.target.encode(self._table.select(split))
        return torch.from_numpy(target) if self.class_names else None

    def serving(self) -> TabularServing:
        return TabularServing(self.metadata)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of scikit-learn's methods with the same training rows, see
        `score_baselines`.
        """
        from litlab.data.tables.baselines import score_baselines

        return score_baselines(self._table.select("train"), self._table.select("test"), self.facts)

    # ---- prediction

    def open_input(self, source: str) -> EncodedRows:
        return self._encode(self.read_input(source))
