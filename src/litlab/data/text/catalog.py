"""What is known of texts before any of them is tokenised."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from litlab.data.bad_rows import Policy
from litlab.data.selectable import check_settings
from litlab.data.text.sources import PublicTexts, Source, csv_source, generated_source, public_source
from litlab.data.text.stored import Recipe
from litlab.data.text.tokenizer import SMALLEST, Kind


@dataclass(frozen=True)
class Catalog:
    """A data set by the names of its options, see `TextData`.

    Raises:
        UserError: An option is not valid, or does not go with the others.
    """

    dataset: str | None
    public: PublicTexts | None
    path: Path
    test_path: Path | None
    columns: list[str] | None
    text_columns: list[str]
    label_column: str
    tokenizer: Kind
    vocab_size: int
    val_fraction: float
    test_fraction: float
    bad_rows: Policy = "error"

    def __post_init__(self) -> None:
        own, test_path, names, label = self.dataset == "csv", self.test_path, self.text_columns, self.label_column
        size, least = self.vocab_size, SMALLEST[self.tokenizer]
        fits = not own or test_path is not None or self.val_fraction + self.test_fraction < 1
        check_settings(
            ("test_path", test_path, own or test_path is None, "it goes with dataset csv"),
            ("text_columns", names, names, "name at least one"),
            ("text_columns", names, len(set(names)) == len(names), "name each column once"),
            ("text_columns", names, label not in names, f"{label} is data.label_column"),
            ("vocab_size", size, size >= least, f"it must be at least {least} for {self.tokenizer}"),
            ("val_fraction", self.val_fraction, fits, "with data.test_fraction it must be below 1"),
        )

    @cached_property
    def source(self) -> Source:
        """The texts, to be read."""
        if self.dataset is None and self.public is not None:
            return public_source(self.public, self.path)
        if self.dataset == "generated":
            return self.stand_in
        columns = self.columns, self.text_columns, self.label_column
        return csv_source(self.path, self.test_path, *columns, self.bad_rows)

    @property
    def stand_in(self) -> Source:
        """Generated texts of two classes in place of a public set of two, else of four."""
        public = self.public if self.dataset is None else None
        return generated_source(2 if public and len(public.class_names) == 2 else 4)

    def recipe(self, source: Source) -> Recipe:
        """How texts become token ids: those of `source`, or of the `stand_in`."""
        return Recipe(source, self.tokenizer, self.vocab_size, self.val_fraction, self.test_fraction)
