"""Texts and their classes, for training, evaluation and prediction."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from typing_extensions import override

from litlab.data.bad_rows import Policy, count_text
from litlab.data.class_counts import Balance
from litlab.data.paths import user_path
from litlab.data.selectable import SelectableData, check_settings
from litlab.data.text.baselines import most_frequent_class
from litlab.data.text.batches import TextBatches
from litlab.data.text.catalog import Catalog
from litlab.data.text.memory import StoredTexts
from litlab.data.text.metadata import TextMetadata
from litlab.data.text.shard_files import write_text_shards
from litlab.data.text.sources import Corpus, PublicTexts, Source
from litlab.data.text.stored import Stored, load, store, stored_classes
from litlab.data.text.tokenizer import Kind, encode
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed


class TextData(TextBatches, SelectableData[TextMetadata]):
    """Texts with one class each: your own CSV file, a public data set (in subclasses), or generated.

    They are tokenised once, into a cache of flat ids; batches are gathered as a whole, from texts of about the same
    length. The model gets a dict with ``ids``, int64 of shape (batch, time), padded with 0 at the end; and int64 labels
    of shape (batch,), but not in prediction. In Python, use a Trainer with ``use_distributed_sampler=False``, as the
    command line does.

    Args:
        dataset: `csv` for your own texts, `generated` for made-up ones; null: the public data set that the class is
            named for.
        path: `csv`: the file to train on; may be gzipped. Public: folder to download to (`data` where null).
        test_path: CSV file to test on; null takes `test_fraction` of the texts in `path`, stratified by class.
        columns: Names of the CSV columns, where the first row is a text; null: the first row has the names.
        text_columns: CSV columns that make up the text, joined by a space.
        label_column: CSV column of the class: words, or numbers.
        tokenizer: `word`: words in lower case and punctuation marks, those that come at least twice in training;
            `bpe`: pieces of words, by byte-pair encoding, also in lower case.
        vocab_size: Most entries of the vocabulary.
        max_tokens: Longest piece of a text, in tokens, that the model reads at once.
        long_texts: `truncate` cuts longer texts to their beginning. `crop` takes a piece at random in training, and
            whole texts in evaluation, of which the model reads beginning and end.
        batch_size: Texts per batch and process.
        tokens_per_batch: Instead of `batch_size`: tokens per batch and process, padding included.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts (`sqrt`); null: as they
            are. An epoch keeps its length, so samples of rare classes come several times, others not in every epoch.
        val_fraction: Fraction of the training texts kept for validation; 0 for none.
        test_fraction: Fraction of the texts kept for the test, where there is no `test_path`; 0 for none.
        bad_rows: CSV rows that can't be used (no text or label, too many fields, ...): `error` names them, `drop`
            leaves them out and says how many there are.
        seed: Seed of the order and the random pieces; that of the run (seed_everything) when left out. The split is
            the same for every seed.
        fallback: `generated` uses made-up texts where a public set can't be downloaded, and says so; null stops there.
        cache_dir: Folder for the tokenised texts.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing, incomplete or damaged.
    """

    public: ClassVar[PublicTexts | None] = None
    kind = "texts"
    trained_settings: ClassVar[tuple[str, ...]] = ("vocab_size", *TextBatches.trained_settings)

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: str | None = None,
        *,
        test_path: str | None = None,
        columns: list[str] | None = None,
        text_columns: list[str] = ["text"],  # noqa: B006 - it is not changed
        label_column: str = "label",
        tokenizer: Kind = "word",
        vocab_size: PositiveInt = 20_000,
        max_tokens: PositiveInt = 256,
        long_texts: Literal["truncate", "crop"] = "truncate",
        batch_size: PositiveInt = 32,
        tokens_per_batch: PositiveInt | None = None,
        balance: Balance | None = None,
        val_fraction: HalfOpenUnitInterval = 0.1,
        test_fraction: HalfOpenUnitInterval = 0.1,
        bad_rows: Policy = "error",
        seed: Seed | None = None,
        fallback: Literal["generated"] | None = None,
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super().__init__(dataset, path, fallback, batch_size=batch_size, seed=seed, cache_dir=cache_dir, **loader)
        # Not for the loggers: the model has settings of the same names, and Lightning refuses two that differ.
        self.save_hyperparameters(logger=False)
        test_file = None if test_path is None else user_path(test_path, "data.test_path")
        self.catalog = Catalog(
            dataset, self.public, self.path, test_file, columns, list(text_columns), label_column,
            tokenizer, vocab_size, val_fraction, test_fraction, bad_rows,
        )  # fmt: skip
        alone = "leave it out, or data.tokens_per_batch: how many batches an epoch has would differ"
        check_settings(("balance", balance, balance is None or tokens_per_batch is None, alone))
        self.tokens_per_batch = tokens_per_batch
        self.balance = balance
        self.columns, self.bad_rows = columns, bad_rows
        self.text_columns = None if list(text_columns) == ["text"] else list(text_columns)  # None: not set
        self._dropped = 0  # rows
        self._corpus: Corpus | None = None  # until it is in the cache

    # ---- what is known before `setup`, without tokenising any text

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""
        if self.metadata and self.restored:
            return self.metadata.class_names
        return self._source.class_names or stored_classes(self.cache_folder) or self._read().class_names

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def vocab_size(self) -> int:
        """Upper bound of the vocabulary: all ids are below."""
        return self.setting("vocab_size")

    @property
    def max_tokens(self) -> int:
        """Longest piece of a text that the model reads at once."""
        return self.setting("max_tokens")

    @property
    def has_val(self) -> bool:
        """Whether there are texts to validate on."""
        return self.catalog.val_fraction > 0

    @property
    def has_test(self) -> bool:
        """Whether there are texts to test on."""
        return self._source.has_test or self.catalog.test_fraction > 0

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of texts after `setup`."""
        unit = "words" if self.catalog.tokenizer == "word" else "pieces of words"
        return self.described(
            f"texts of up to {self.max_tokens} tokens, {self.num_classes} classes, at most {self.vocab_size:,} "
            f"{unit}{count_text(self._dropped)}"
        )

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""
        return self.catalog.recipe(self._source).cache_name

    # ---- from files to memory

    @property
    def _source(self) -> Source:
        return self.catalog.stand_in if self.generated else self.catalog.source

    def _read(self) -> Corpus:
        """Return the raw texts. They are read once: for the names of the classes, or else for the cache."""
        if self._corpus is None:
            self._corpus = self._source.read()
        return self._corpus

    @override
    def caches(self) -> dict[Path, Callable[[Path], None]]:
        recipe = self.catalog.recipe(self._source)
        return {self.cache_folder: lambda folder: store(recipe, self._read(), folder)}

    @property
    def stored(self) -> Stored:
        """The token ids in the cache; after `prepare_data`."""
        return load(self.cache_folder)

    @override
    def open(self, stage: str | None) -> TextMetadata:
        stored, self._corpus = self.stored, None
        self.sizes = {split: len(stored.array(split, "labels")) for split in stored.splits}
        self._dropped = sum(stored.dropped.values())
        for note in stored.told(stage):
            rank_zero_info(note)
        names = ("vocab_size", "max_tokens", "long_texts", "columns", "text_columns", "label_column")
        own = {name: self.hparams[name] for name in names}
        return TextMetadata(stored.class_names, stored.tokenizer, **own, generated=self.generated)

    def _encoded(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids and offsets of a split, by the tokenizer that counts: a checkpoint's may be another than the cache's."""
        stored, tokenizer = self.stored, self.known_metadata.tokenizer
        if tokenizer == stored.tokenizer:
            return stored.array(split, "ids"), stored.array(split, "offsets")
        return encode(tokenizer, stored.texts(split))

    @override
    def samples(self, split: str) -> StoredTexts:
        return self.in_memory(*self._encoded(split), split, self.stored.array(split, "labels"))

    @override
    def labels(self, split: str) -> Tensor:
        return torch.from_numpy(np.array(self.stored.array(split, "labels")))

    @override
    def missing_split(self, split: str) -> str:
        return f"data.{split}_fraction: 0 leaves no {split} texts of {self.path}; set it above 0"

    @override
    def write_shards(self, folder: Path, size: int) -> None:
        stored = self.stored
        splits = {split: (*self._encoded(split), stored.array(split, "labels")) for split in self.sizes}
        write_text_shards(folder, size, self.known_metadata, splits)

    # ---- what callbacks ask for

    def text(self, split: str, index: int) -> str:
        """One raw text, by its number in a split."""
        return self.stored.text(split, index)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of simple methods on the same texts: for each its ``test/acc`` and ``test/f1``."""
        return {"most frequent class": most_frequent_class(self.stored)} if self.has_test else {}
