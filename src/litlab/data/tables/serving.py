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
        codes = "column `categories`: place of the category in its list, from 1; 0 for a missing or another one"
        inputs = {
            "numbers": ("float64", len(metadata.numbers), "columns `numbers`, NaN for a missing one"),
            "categories": ("int64", len(metadata.categories), codes),
        }
        given = [
            TensorSpec(name, dtype, (BATCH, width), what) for name, (dtype, width, what) in inputs.items() if width
        ]
        width = len(metadata.targets)
        numbers = [TensorSpec("predicted", "float32", (BATCH, width), "columns `targets`, in the units of the file")]
        super().__init__(given, class_outputs(metadata.class_names) if metadata.class_names else numbers)
        self.metadata = metadata
        self.register_buffer("mean", torch.tensor(metadata.mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(metadata.std, dtype=torch.float64))
        places = [metadata.numbers.index(name) for name in metadata.indicated]
        self.register_buffer("indicated", torch.tensor(places, dtype=torch.int64))

    def encode(self, *raw: Tensor) -> dict[str, Tensor]:
        """Return numbers, float32 (batch, column), and categories, int64 (batch, column)."""
        given = dict(zip((spec.name for spec in self.inputs), raw, strict=True))
        rows = raw[0].shape[0]
        numbers = raw[0].new_zeros((rows, 0), dtype=torch.float32)
        if "numbers" in given:
            missing = given["numbers"].isnan()
            numbers = torch.where(missing, 0.0, (given["numbers"] - self.mean) / self.std).float()
            if len(self.indicated):
                numbers = torch.cat([numbers, missing.index_select(1, self.indicated).float()], dim=1)
        return {"numbers": numbers, "categories": given.get("categories", numbers.new_zeros((rows, 0)).long())}

    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        """Return the rows of a batch, with or without a target, as they were in the file."""
        inputs = batch if isinstance(batch, dict) else batch[0]
        width = len(self.mean)
        numbers = inputs["numbers"][:, :width].double() * self.std + self.mean
        missing = torch.zeros_like(numbers, dtype=torch.bool)
        missing[:, self.indicated] = inputs["numbers"][:, width:] > 0.5
        given = {"numbers": numbers.masked_fill(missing, torch.nan), "categories": inputs["categories"]}
        return tuple(given[spec.name] for spec in self.inputs)

    def facts(self) -> dict[str, Any]:
        """Return the columns in order, with mean and standard deviation or categories, and the classes or targets."""
        names = ["numbers", "mean", "std", "categories", "targets"]
        names += ["class_names"] * (self.metadata.task == "classification")
        return {name: getattr(self.metadata, name) for name in names}

    def unit(self) -> Tensor:
        """Return the standard deviation of each target, (target,); 1 for probabilities."""
        return torch.tensor(self.metadata.target_std or 1.0)

    def example(self) -> tuple[Tensor, ...]:
        """Return the mean of all numbers with the most frequent categories, and a row of which nothing is known."""
        codes = torch.tensor([[1], [0]]).repeat(1, len(self.metadata.categories))
        given = {"numbers": torch.stack([self.mean, self.mean * torch.nan]), "categories": codes}
        return tuple(given[spec.name] for spec in self.inputs)
