"""What is known of a table once it is read."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from litlab.data.metadata import ClassMetadata

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

    fixed: ClassVar[tuple[str, ...]] = ("task", "targets", "class_names", "numbers", "category_columns")
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

    @property
    def category_columns(self) -> list[str]:
        return list(self.categories)
