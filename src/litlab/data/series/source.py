"""Where a series comes from: the public file, the user's own, or made up."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from lightning.pytorch.utilities import rank_zero_info

from litlab.data.bad_rows import Policy
from litlab.data.download import ensure_or_fall_back, obtain_file
from litlab.data.series.generated import GENERATED_COLUMNS, generated_series
from litlab.data.series.public import PublicSeries
from litlab.data.series.reading import nearest_name, read_table
from litlab.data.series.split import FRACTIONS, Split, split_rows
from litlab.data.series.timeline import Series, regular
from litlab.errors import UserError


@dataclass(frozen=True)
class Source:
    """A series by the names of its options, see `SeriesData`.

    Args:
        dataset: "csv" or "generated"; None: the public series.
        public: The public series, if there is one.
        path: The folder of the public file, or the file.
        time_column: Column of the times.
        targets: Columns to forecast; None: all that hold numbers.
        split: Shares, dates, or None for the usual split.
        gaps: Whether what is missing is an error or interpolated.
        bad_rows: Whether rows that can't be used are errors or left out.

    Raises:
        UserError: A target is none.
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
        for name in targets:
            if targets.count(name) > 1:
                raise UserError(f"data.targets: {name!r} is listed twice; delete one")
            if name == self.time_column:
                raise UserError(f"data.targets: {name!r} is the time column; delete it")
            if known and name not in known:
                raise UserError(f"data.targets: {self.kind} has no column {name!r}{nearest_name(name, known)}")

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
        assert self.public is not None  # `SeriesData` refuses to have neither
        return self.public

    def has(self, split: Literal["val", "test"]) -> bool:
        """Whether a split has rows."""
        if self.split is None or isinstance(self.split[0], str):
            return True
        return float(self.split[1 if split == "val" else 2]) > 0

    def name(self, generated: bool) -> str:
        """Return what the series is, in a few words."""
        if generated:
            return f"GENERATED stand-in for {self.kind}" if self.dataset is None else "GENERATED series"
        return self.kind if self.dataset is None else f"csv {self.path}"

    def ensure_downloaded(self, fallback: Literal["generated"] | None) -> bool:
        """Download the public file where it is not there yet.

        Args:
            fallback: Whether a generated series may take its place.

        Returns:
            Whether it is there; always, for other series.

        Raises:
            UserError: It can't be had, and nothing may take its place.
        """
        if self.dataset is not None:
            return True
        if self.path.is_file():
            raise UserError(
                f"data.path: {self.path} is a file, {self.kind} needs its folder; or set data.dataset to csv"
            )
        file, own = self._public.file, "--data.dataset csv --data.path FILE.csv"
        download = partial(obtain_file, file, self.path)
        return ensure_or_fall_back(download, fallback, self.kind, [file.name], self.path, own)

    def read(self, generated: bool) -> Series:
        """Read and check the series.

        Args:
            generated: Whether a made-up one takes its place.

        Raises:
            UserError: The file is missing or something in it is wrong.
        """
        if generated:
            return generated_series(self._known_columns or ()).select(self.columns or [])
        file = self.path if self.dataset == "csv" else self.path / self._public.file.name
        series = regular(read_table(file, self.time_column, self.targets, bad_rows=self.bad_rows), self.gaps)
        if series.filled:
            rank_zero_info(f"{file}: {series.filled}")
        return series

    def ends(self, series: Series, generated: bool) -> tuple[int, int, int]:
        """Return the ends of the training, the validation and the test rows.

        Args:
            series: What `read` returned.
            generated: Whether it is made up.

        Raises:
            UserError: A date is outside the series.
        """
        stand_in = generated and self.dataset is None
        if self.dataset is None and self.split is None and not stand_in:
            return self._public.ends
        split = self.split or FRACTIONS
        if stand_in and isinstance(split[0], str):
            split = FRACTIONS  # the dates are those of the real series
        return split_rows(split, series, self.name(generated))
