"""What is known of a text data set before any text is read."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from litlab.data.bad_rows import Policy
from litlab.data.download import ensure_or_fall_back
from litlab.data.text.corpus import Source
from litlab.data.text.public import PublicTexts
from litlab.data.text.sources import csv_source, generated_source, public_source


@dataclass(frozen=True)
class Catalog:
    """A data set by the names of its options, see `TextData`.

    Args:
        dataset: "csv" or "generated"; None: the public data set.
        public: The public data set, if there is one.
        path: Where it is.
        test_path: CSV file of the test split.
        columns: Names of the columns of CSV files without a row of names.
        text_columns: CSV columns that make up the text.
        label_column: CSV column of the labels.
        bad_rows: Whether CSV rows that can't be used are an error or left out.
    """

    dataset: str | None
    public: PublicTexts | None
    path: Path
    test_path: Path | None
    columns: list[str] | None
    text_columns: list[str]
    label_column: str
    bad_rows: Policy

    @cached_property
    def source(self) -> Source:
        """The texts, to be read."""
        if self.dataset == "generated":
            return self.stand_in
        if self.dataset == "csv":
            columns = self.columns, self.text_columns, self.label_column
            return csv_source(self.path, self.test_path, *columns, self.bad_rows)
        return public_source(self._public, self.path)

    @cached_property
    def stand_in(self) -> Source:
        """Generated texts of as many classes."""
        return generated_source(2 if self.dataset is None and len(self._public.class_names) == 2 else 4)

    def describe(self, generated: bool) -> str:
        """Name the data set.

        Args:
            generated: Whether the texts are made up.
        """
        if generated:
            return f"GENERATED stand-in for {self._public.name}" if self.dataset is None else "GENERATED texts"
        return self._public.name if self.dataset is None else f"csv {self.path}"

    def ensure_downloaded(self, fallback: Literal["generated"] | None) -> bool:
        """Make sure that the files of a public data set are there.

        Args:
            fallback: "generated" to resort to generated texts, with a loud message.

        Returns:
            Whether they are there; always, where there is no fallback, and for other data sets.

        Raises:
            UserError: They are not there, and there is no fallback.
        """
        if self.dataset is not None:
            return True
        files, own = [file.name for file in self._public.files], "--data.dataset csv --data.path FILE"
        download = partial(self._public.ensure_downloaded, self.path)
        return ensure_or_fall_back(download, fallback, self._public.name, files, self.path, own)

    @property
    def _public(self) -> PublicTexts:
        assert self.public is not None  # `TextData` refuses to have neither
        return self.public
