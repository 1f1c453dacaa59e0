"""Rows of a table as a deployed model takes them: numbers in the units of the file, and numbers of categories."""

from typing import Any

import torch
from torch import Tensor

from litlab.data.serving import BATCH, Serving, TensorSpec, class_outputs
from litlab.data.tables.metadata import TabularMetadata


class TabularServing(Serving):
    """Standardises numbers, and notes which are missing.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "rows"
    mean: Tensor
    std: Tensor
    indicated: Tensor

    def __init__(self, metadata: TabularMetadata) -> None:
        numbers, categories = len(metadata.numbers), len(metadata.categories)
        inputs = []
        if numbers:
            inputs.append(
                TensorSpec("numbers", "float64", (BATCH, numbers), "columns `numbers`, NaN for a missing one")
            )
        if categories:
            what = "columns `categories`: place of the category in its list, from 1; 0 for a missing or another one"
            inputs.append(TensorSpec("categories", "int64", (BATCH, categories), what))
        what = "columns `targets`, in the units of the file"
        regression = [TensorSpec("predicted", "float32", (BATCH, len(metadata.targets)), what)]
        classes = metadata.class_names
        super().__init__(inputs, class_outputs(classes) if metadata.task == "classification" else regression)
        self.metadata = metadata
        self.register_buffer("mean", torch.tensor(metadata.mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(metadata.std, dtype=torch.float64))
        places = [metadata.numbers.index(name) for name in metadata.indicated]
        self.register_buffer("indicated", torch.tensor(places, dtype=torch.int64))

    def encode(self, *raw: Tensor) -> dict[str, Tensor]:
        """Return numbers, float32 (batch, column), and categories, int64 (batch, column)."""
        given = dict(zip((spec.name for spec in self.inputs), raw, strict=True))
        rows = raw[0].shape[0]
        if "numbers" in given:
            missing = given["numbers"].isnan()
            scaled = torch.where(missing, 0.0, (given["numbers"] - self.mean) / self.std)
            parts = [scaled.float()]
            if len(self.indicated):
                parts.append(missing.index_select(1, self.indicated).float())
            numbers = torch.cat(parts, dim=1)
        else:
            numbers = torch.zeros(rows, 0)
        categories = given["categories"] if "categories" in given else torch.zeros(rows, 0, dtype=torch.int64)
        return {"numbers": numbers, "categories": categories}

    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        """Return the rows of a batch, with or without a target, as they were in the file."""
        inputs = batch if isinstance(batch, dict) else batch[0]
        columns = len(self.metadata.numbers)
        numbers = inputs["numbers"][:, :columns].double() * self.std + self.mean
        missing = torch.zeros_like(numbers, dtype=torch.bool)
        missing[:, self.indicated] = inputs["numbers"][:, columns:] > 0.5
        given = {"numbers": numbers.masked_fill(missing, torch.nan), "categories": inputs["categories"]}
        return tuple(given[spec.name] for spec in self.inputs)

    def facts(self) -> dict[str, Any]:
        """Return the columns in order, with mean and standard deviation or categories, and the classes or targets."""
        known = self.metadata
        names = ("numbers", "mean", "std", "categories", "targets")
        result = {name: getattr(known, name) for name in names}
        return result | ({"class_names": known.class_names} if known.task == "classification" else {})

    def unit(self) -> Tensor:
        """Return the standard deviation of each target, (target,); 1 for probabilities."""
        return torch.tensor(self.metadata.target_std) if self.metadata.task == "regression" else torch.ones(())

    def example(self) -> tuple[Tensor, ...]:
        """Return the mean of all numbers with the most frequent categories, and a row of which nothing is known."""
        columns = len(self.metadata.categories)
        given = {
            "numbers": torch.stack([self.mean, torch.full_like(self.mean, torch.nan)]),
            "categories": torch.stack([torch.ones(columns).long(), torch.zeros(columns).long()]),
        }
        return tuple(given[spec.name] for spec in self.inputs)
