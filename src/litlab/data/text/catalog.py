"""What is known of a text data set before any text is read."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from litlab.data.bad_rows import Policy
from litlab.data.download import ensure_or_fall_back
from litlab.data.text.corpus import Source
from litlab.data.text.public import PUBLIC_SETS, ensure_downloaded
from litlab.data.text.sources import csv_source, generated_source, public_source
from litlab.errors import UserError


@dataclass(frozen=True)
class Catalog:
    """A data set by the names of its options, see `TextData`.

    Args:
        dataset: Key of `PUBLIC_SETS`, "csv" or "generated".
        path: Where it is.
        test_path: CSV file of the test split.
        columns: Names of the columns of CSV files without a row of names.
        text_columns: CSV columns that make up the text.
        label_column: CSV column of the labels.
        bad_rows: Whether CSV rows that can't be used are an error or left out.
    """

    dataset: str
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
        return public_source(self.dataset, self.path)

    @cached_property
    def stand_in(self) -> Source:
        """Generated texts of as many classes."""
        return generated_source(2 if self.dataset == "imdb" else 4)

    def describe(self, generated: bool) -> str:
        """Name the data set.

        Args:
            generated: Whether the texts are made up.
        """
        if generated:
            return "GENERATED texts" if self.dataset == "generated" else f"GENERATED stand-in for {self.dataset}"
        return f"csv {self.path}" if self.dataset == "csv" else self.dataset

    def ensure_downloaded(self, fallback: Literal["generated"] | None) -> bool:
        """Make sure that the files of a public data set are there.

        Args:
            fallback: "generated" to resort to generated texts, with a loud message.

        Returns:
            Whether they are there; always, where there is no fallback, and for other data sets.

        Raises:
            UserError: They are not there, and there is no fallback.
        """
        if self.dataset not in PUBLIC_SETS:
            return True
        files, own = [file.name for file in PUBLIC_SETS[self.dataset].files], "--data.dataset csv --data.path FILE"
        download = partial(ensure_downloaded, self.dataset, self.path)
        return ensure_or_fall_back(download, fallback, self.dataset, files, self.path, own)


def check_same(trained: list[str], here: list[str]) -> None:
    """Refuse data of other classes than those of a checkpoint.

    Args:
        trained: Names of its classes.
        here: Names of the classes of the data.

    Raises:
        UserError: They differ.
    """
    if trained != here:
        old, new = (
            f"{len(names)} classes ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
            for names in (trained, here)
        )
        raise UserError(f"data: the checkpoint was trained on {old}, the data have {new}; use data of the same classes")
