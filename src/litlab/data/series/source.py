"""Where a series comes from: the public file, the user's own, or made up."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lightning.pytorch.utilities import rank_zero_info

from litlab.data.bad_rows import Policy
from litlab.data.download import PublicFile, obtain_file
from litlab.data.series.generated import GENERATED_COLUMNS, generated_series
from litlab.data.series.reading import read_table
from litlab.data.series.split import FRACTIONS, Split, check_split, split_rows
from litlab.data.series.timeline import Series, regular
from litlab.errors import UserError
from litlab.util.text import nearest


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

    @property
    def file_names(self) -> list[str]:
        """The name of the file."""
        return [self.file.name]

    def ensure_downloaded(self, root: Path) -> None:
        """Make sure that the file is in a folder, and whole; see `obtain_file`."""
        obtain_file(self.file, root)


@dataclass(frozen=True)
class Source:
    """A series by the names of its options, see `SeriesData`.

    Raises:
        UserError: There is no target, or one is listed twice, is the time column, or is no column of a public or
            generated series; or the split fits no series.
    """

    dataset: str | None
    public: PublicSeries | None
    path: Path
    time_column: str
    targets: list[str] | None
    split: Split | None
    gaps: Literal["error", "interpolate"]
    bad_rows: Policy = "error"

    def __post_init__(self) -> None:
        targets, known = self.targets or [], self._known_columns
        if self.targets == []:
            raise UserError("data.targets: [] is not valid; name at least one, or leave it out")
        for name in targets:
            if targets.count(name) > 1:
                raise UserError(f"data.targets: {name!r} is listed twice; delete one")
            if name == self.time_column:
                raise UserError(f"data.targets: {name!r} is the time column; delete it")
            if known and name not in known:
                only = f", only {', '.join(map(repr, known))}"
                raise UserError(f"data.targets: {self.kind} has no column {name!r}{nearest(name, known, only)}")
        if self.split is not None:
            check_split(self.split)

    @property
    def columns(self) -> list[str] | None:
        """Names of the columns to forecast; None where only the file tells."""
        return self.targets or (None if self._known_columns is None else list(self._known_columns))

    @property
    def kind(self) -> str:
        """What the series is, in one word."""
        return self.dataset or self._public.name

    @property
    def _known_columns(self) -> tuple[str, ...] | None:
        return {None: self.public and self.public.columns, "generated": GENERATED_COLUMNS}.get(self.dataset)

    @property
    def _public(self) -> PublicSeries:
        assert self.public is not None  # `SelectableData` refuses to have neither
        return self.public

    def has(self, split: Literal["val", "test"]) -> bool:
        """Whether a split has rows."""
        if self.split is None or isinstance(self.split[0], str):
            return True
        return float(self.split[1 if split == "val" else 2]) > 0

    def read(self, generated: bool) -> Series:
        """Read and check the series, or make one up that takes its place.

        Args:
            generated: Whether to make it up.

        Raises:
            UserError: The file can't be read, or something in it is wrong or missing; see `read_table` and `regular`.
        """
        if generated:
            return generated_series(self._known_columns or ()).select(self.columns or [])
        file = self.path if self.dataset == "csv" else self.path / self._public.file.name
        series = regular(read_table(file, self.time_column, self.targets, bad_rows=self.bad_rows), self.gaps)
        if series.filled:
            rank_zero_info(f"{file}: {series.filled}")
        return series

    def ends(self, series: Series, generated: bool, name: str) -> tuple[int, int, int]:
        """Return the ends of the training, the validation and the test rows of what `read` returned.

        Args:
            series: What `read` returned.
            generated: Whether it was made up.
            name: What it is, for messages.

        Raises:
            UserError: A date of the split is outside the series, or has a UTC offset and the series has none.
        """
        stand_in = generated and self.dataset is None
        if self.dataset is None and self.split is None and not stand_in:
            return self._public.ends
        split = self.split or FRACTIONS
        if stand_in and isinstance(split[0], str):
            split = FRACTIONS  # the dates are those of the real series
        return split_rows(split, series, name)
