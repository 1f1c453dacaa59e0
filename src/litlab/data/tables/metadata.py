"""What is known of a table once it is read."""

from dataclasses import dataclass
from typing import Literal

from litlab.data.metadata import ClassMetadata
from litlab.errors import UserError

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class TabularMetadata(ClassMetadata):
    """Metadata of a table; what is measured is that of its training rows.

    Args:
        task: What is done with the targets.
        targets: Columns to predict.
        target_mean: Mean of each target; empty in classification.
        target_std: Standard deviation of each target, likewise.
        numbers: Input columns of numbers.
        mean: Mean of each of them.
        std: Standard deviation of each of them.
        indicated: Those of them that miss values: each has a second input which says so.
        categories: For each input column of categories those that occur at least twice, the most frequent first.
        generated: Whether the table is made up.
    """

    task: Task
    targets: list[str]
    target_mean: list[float]
    target_std: list[float]
    numbers: list[str]
    mean: list[float]
    std: list[float]
    indicated: list[str]
    categories: dict[str, list[str]]
    generated: bool

    def check_same(self, here: "TabularMetadata") -> None:
        """Refuse another task, other targets or classes, and input columns that are missing or of another kind."""
        for key, setting in (("task", "task"), ("targets", "target")):
            old, new = getattr(self, key), getattr(here, key)
            if old != new:
                old, new = (f"[{', '.join(value)}]" if isinstance(value, list) else value for value in (old, new))
                raise UserError(
                    f"data.{setting}: the checkpoint was trained for {old}, here it is {new}; set it to {old}"
                )
        for name in (*self.numbers, *self.categories):
            was, other = ("numbers", "categories") if name in self.numbers else ("categories", "numbers")
            if name in getattr(here, other):
                raise UserError(
                    f"data.categories: column {name!r} holds {other} here, the checkpoint was trained with {was}; "
                    f"{'add it' if was == 'categories' else 'correct the column, or leave it out of data.categories'}"
                )
            if name not in getattr(here, was):
                raise UserError(
                    f"data: there is no input column {name!r}, which the checkpoint was trained with; add it"
                )
        super().check_same(here)
