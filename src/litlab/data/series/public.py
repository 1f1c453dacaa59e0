"""Public series; which ones there are, the DataModules that are named for them say."""

from dataclasses import dataclass

from litlab.data.download import PublicFile


@dataclass(frozen=True)
class PublicSeries:
    """A public series.

    Args:
        name: Short name.
        file: Its file.
        columns: The columns of numbers.
        ends: Rows where training, validation and test end in published comparisons.
    """

    name: str
    file: PublicFile
    columns: tuple[str, ...]
    ends: tuple[int, int, int]
