"""Rows of a table as a deployed model takes them: numbers in the units of the file, and numbers of categories."""

from typing import Any

import torch
from torch import Tensor

from litlab.data.serving import BATCH, Serving, TensorSpec, class_outputs
from litlab.data.tables.metadata import TabularMetadata


class TabularServing(Serving):
    """Standardises numbers, and notes which are missing. A table without numbers, or categories, has one input.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "rows"
    mean: Tensor
    std: Tensor
    indicated: Tensor

    def __init__(self, metadata: TabularMetadata) -> None:
        rows = [
            TensorSpec(
                "numbers", "float64", (BATCH, len(metadata.numbers)), "columns `numbers`, NaN for a missing one"
            ),
            TensorSpec(
                "categories",
                "int64",
                (BATCH, len(metadata.categories)),
                "places in the lists `categories`, from 1; 0 for another one",
            ),
        ]
        numbers = TensorSpec(
            "predicted", "float32", (BATCH, len(metadata.targets)), "columns `targets`, in the units of the file"
        )
        outputs = class_outputs(metadata.class_names) if metadata.class_names else [numbers]
        super().__init__([spec for spec in rows if spec.shape[1]], outputs)
        self.metadata = metadata
        places = [metadata.numbers.index(name) for name in metadata.indicated]
        self.register_buffer("mean", torch.tensor(metadata.mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(metadata.std, dtype=torch.float64))
        self.register_buffer("indicated", torch.tensor(places, dtype=torch.int64))

    def encode(self, *raw: Tensor) -> dict[str, Tensor]:
        """Return numbers, float32 (batch, column), and categories, int64 (batch, column)."""
        given = dict(zip((spec.name for spec in self.inputs), raw, strict=True))
        none = raw[0].new_zeros((raw[0].shape[0], 0))
        numbers, categories = (given.get(name, none) for name in ("numbers", "categories"))
        missing = numbers.isnan()
        scaled = torch.where(missing, 0.0, (numbers - self.mean) / self.std)
        numbers = torch.cat([scaled.float(), missing.index_select(1, self.indicated).float()], dim=1)
        return {"numbers": numbers, "categories": categories.long()}

    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        inputs = batch if isinstance(batch, dict) else batch[0]
        scaled, flags = inputs["numbers"].double().tensor_split([len(self.mean)], dim=1)
        missing = torch.zeros_like(scaled).index_copy(1, self.indicated, flags)
        numbers = (scaled * self.std + self.mean).masked_fill(missing > 0, torch.nan)
        return self._choose(numbers, inputs["categories"])

    def facts(self) -> dict[str, Any]:
        """Return the metadata: the columns in order, the categories of each, the classes, ..."""
        return self.metadata.state_dict()

    def unit(self) -> Tensor:
        return torch.tensor(self.metadata.target_std or 1.0)

    def example(self) -> tuple[Tensor, ...]:
        """Return two rows of mean numbers and unknown categories."""
        return self._choose(self.mean.repeat(2, 1), torch.zeros(2, len(self.metadata.categories), dtype=torch.int64))

    def _choose(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return those of numbers and categories that have columns."""
        return tuple(tensor for tensor in given if tensor.shape[1])
