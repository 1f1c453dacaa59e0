"""Rows of a table, for training, evaluation and prediction."""

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from litlab.data.bad_rows import Policy, count_text
from litlab.data.class_counts import Balance
from litlab.data.paths import user_path
from litlab.data.selectable import SelectableData, check_settings
from litlab.data.tables.baselines import tabular_baselines
from litlab.data.tables.encoding import encode, measured
from litlab.data.tables.memory import EncodedRows
from litlab.data.tables.metadata import TabularMetadata, Task
from litlab.data.tables.predictions import read_input, write_rows
from litlab.data.tables.serving import TabularServing
from litlab.data.tables.source import Source, Table
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed


class TabularData(SelectableData[TabularMetadata]):
    """Rows of numbers and categories with a target to classify or regress: your own CSV file, or generated.

    A batch is (inputs, target). Inputs are a dict that the network gets as keyword arguments: ``numbers``, float32 of
    shape (batch, column), standardised by the training rows, and ``categories``, int64 of shape (batch, column). One of
    them may have no columns. The target is int64 of shape (batch,) in classification, float32 of shape (batch, target)
    in regression, in the units of the file. In prediction a batch is the dict alone. In Python, use a Trainer with
    ``use_distributed_sampler=False``, as the command line does.

    A missing number is the mean of the training rows; columns that miss some in training have a second input which says
    so. A category that is missing, or came less than twice in training, has number 0, the others are counted from 1.

    Args:
        dataset: `csv` for your own file, `generated` for made-up customers (to predict `churn` or `spend`).
        path: `csv`: the file, UTF-8, .gz too.
        target: Column to predict; in regression it can be several.
        task: What to do with it. null: a column of words, or of at most 20 different whole numbers that come 5 times
            on average, is classified, any other regressed.
        categories: Columns of categories; null: those of words.
        ignore: Columns that are left out.
        split_column: Column that says train, val or test.
        group_column: Column of groups, such as patients: each is in one split only. It is no input.
        time_column: Column of times or numbers: the latest rows are for the test, those before for validation. It is
            no input.
        val_fraction: Fraction of the rows kept for validation, where `split_column` has no val; 0 for none.
        test_fraction: Fraction of the rows kept for the test, where there is no `split_column`; 0 for none.
        batch_size: Rows per batch and process.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts (`sqrt`); null: as they
            are. An epoch keeps its length, so samples of rare classes come several times, others not in every epoch.
        bad_rows: Rows that can't be used (no target, text for a number, too many fields, ...): `error` names them,
            `drop` leaves them out and says how many there are.
        seed: Seed of the order; that of the run (seed_everything) when left out. The split is the same for every seed.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing or wrong.
    """

    item, kind = "rows", "table"
    input_kinds = "a CSV file"
    metadata_type = TabularMetadata

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: str | None = None,
        *,
        target: list[str] | str | None = None,
        task: Task | None = None,
        categories: list[str] | None = None,
        ignore: list[str] = [],  # noqa: B006 - it is not changed
        split_column: str | None = None,
        group_column: str | None = None,
        time_column: str | None = None,
        val_fraction: HalfOpenUnitInterval = 0.1,
        test_fraction: HalfOpenUnitInterval = 0.2,
        batch_size: PositiveInt = 64,
        balance: Balance | None = None,
        bad_rows: Policy = "error",
        seed: Seed | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(dataset, path, None, batch_size=batch_size, seed=seed, **loader)
        self.save_hyperparameters(logger=False)  # the model has settings of the same names, perhaps from a checkpoint
        held_out = val_fraction + test_fraction
        check_settings(
            ("target", target, target, "name the column to predict"),
            ("val_fraction", val_fraction, held_out < 1, "with data.test_fraction it must be below 1"),
        )
        self.targets = [target] if isinstance(target, str) else list(target or [])
        self.source = Source(
            self.path, self.targets, task, categories, list(ignore), split_column, group_column, time_column,
            val_fraction, test_fraction, bad_rows,
        )  # fmt: skip
        self.balance = balance
        self._predicted: list[int] = []  # numbers of the rows

    # ---- what is known before `setup`; from the checkpoint where one was loaded

    @cached_property
    def table(self) -> Table:
        """The table with its splits, nothing scaled yet."""
        return self.source.read(self.generated)

    @cached_property
    def _measured(self) -> TabularMetadata:
        fields = measured(self.table, self.targets, self.source.ignore, self.source_name)
        return TabularMetadata(**fields, generated=self.generated)

    @property
    def _known(self) -> TabularMetadata:
        return self.metadata if self.metadata and self.restored else self._measured

    @property
    def num_numbers(self) -> int:
        """Number of inputs that are numbers, those that tell of missing ones included."""
        return len(self._known.numbers) + len(self._known.indicated)

    @property
    def category_sizes(self) -> list[int]:
        """For each input of categories how many numbers they have, 0 included."""
        return [1 + len(names) for names in self._known.categories.values()]

    @property
    def num_outputs(self) -> int:
        """Number of classes or of targets."""
        return len(self._known.class_names) or len(self._known.targets)

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; none in regression."""
        return self._known.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes; a UserError in regression."""
        self._check_task("classification", "Regressor")
        return len(self._known.class_names)

    @property
    def target_names(self) -> list[str]:
        """Names of the targets; a UserError in classification."""
        self._check_task("regression", "Classifier")
        return self._known.targets

    @property
    def target_mean(self) -> list[float]:
        """Mean of each target in the training rows; a UserError in classification."""
        self._check_task("regression", "Classifier")
        return self._known.target_mean

    @property
    def target_std(self) -> list[float]:
        """Standard deviation of each target in the training rows; a UserError in classification."""
        self._check_task("regression", "Classifier")
        return self._known.target_std

    def _check_task(self, task: Task, other_model: str) -> None:
        known = self._known
        if known.task != task:
            raise UserError(
                f"model: this one is for {task}, but {', '.join(known.targets)} is for {known.task}; use --model "
                f"{other_model}, or set data.task {task}"
            )

    @property
    def has_val(self) -> bool:
        """Whether there are rows to validate on."""
        return len(self.table.places("val")) > 0

    @property
    def has_test(self) -> bool:
        """Whether there are rows to test on."""
        return len(self.table.places("test")) > 0

    @property
    def description(self) -> str:
        """The table in one line; with the numbers of rows after `setup`."""
        known = self._known
        classes = f"{len(known.class_names)} classes of " if known.class_names else ""
        inputs = f"{len(known.numbers)} numbers and {len(known.categories)} categories"
        return self.described(f"rows of {inputs}, {classes}{', '.join(known.targets)}{count_text(self.table.dropped)}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever the table or its splits do."""
        return f"{self.dataset}-{self.table.digest()}"

    # ---- from a file to memory

    @override
    def open(self, stage: str | None) -> TabularMetadata:
        self.sizes = {split: len(rows) for split in ("train", "val", "test") if len(rows := self.table.places(split))}
        return self._measured

    @override
    def missing_split(self, split: str) -> str:
        if self.source.split_column and split == "test":
            return f"data.split_column: no row of {self.path} is for the test; mark some"
        return f"data.{split}_fraction: 0 leaves no {split} rows of {self.path}; set it above 0"

    @override
    def samples(self, split: str) -> EncodedRows:
        metadata, rows = self.known_metadata, self.table.take(self.table.places(split))
        regression = metadata.task == "regression"
        target = torch.from_numpy(rows.target.astype(np.float32)) if regression else self.labels(split)
        samples = EncodedRows(*encode(rows.numbers, rows.categories, metadata, self.source_name), target)
        return samples if self.trainer is None else samples.on_device(self.trainer.strategy.root_device)

    @override
    def labels(self, split: str) -> Tensor:
        if self.known_metadata.task == "regression":
            raise UserError("data.balance: the target is a number, not a class; leave it out")
        number = {name: place for place, name in enumerate(self.known_metadata.class_names)}
        return torch.tensor([number[label] for label in self.table.target[self.table.places(split)]])

    @override
    def serving(self) -> TabularServing:
        return TabularServing(self.known_metadata)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of scikit-learn's methods with the same training rows, see `tabular_baselines`."""
        return tabular_baselines(self.table, self.known_metadata) if self.has_test else {}

    # ---- prediction

    @override
    def open_input(self, source: str) -> EncodedRows:
        path = user_path(source, "--input")
        rows, self._predicted = read_input(path, self.known_metadata, self.source.bad_rows)
        return rows

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a CSV file with a row per row of `predict_input`: class and probabilities, or a number for each target.

        Args:
            outputs: Of the batches in order: probabilities, shape (batch, class), or predictions, (batch, target).
            path: The file; one that is there is replaced.
        """
        predicted = torch.cat([output.cpu() for output in outputs])
        write_rows(Path(path), self._predicted, self.known_metadata, predicted)
