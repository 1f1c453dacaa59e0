"""Texts and their classes, for training, evaluation and prediction."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from typing_extensions import override

from litlab.data.classes import Balance, warn_of_like_classes
from litlab.data.frames import Policy, Source, UserFile
from litlab.data.length_batches import LengthBatches
from litlab.data.module import ExperimentData
from litlab.data.predictions import write_classes
from litlab.data.sampler import EpochSampler
from litlab.data.scores import classification_scores
from litlab.data.text.generated import make_corpus
from litlab.data.text.reading import FILES, Corpus, compute_digest, read_corpus, read_input
from litlab.data.text.serving import TextMetadata, TextServing
from litlab.data.text.store import TokenizedTexts, gather_texts, open_part, read_about, read_split, store_corpus
from litlab.data.text.tokenizer import SMALLEST, Kind, encode
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed

_VERSION = 2  # raise it when the arrays of the same texts would come out different
_TABLE = ("columns", "text_columns", "label_column", "delimiter", "missing", "bad_rows")
_PREPARATION = ("tokenizer", "vocab_size", "val_fraction", "test_fraction", "fold")
_SHOWN = 80  # characters of a text in the file of predictions
_MOST_FOR_BASELINE = 200_000  # texts


class TextData(ExperimentData):
    """Texts with one class each: your own file, a public data set (in subclasses), or generated.

    They are tokenised once, into a cache of flat ids; batches are gathered as a whole, from texts of about the same
    length. The model gets a dict with ``ids``, int64 of shape (batch, time), padded with 0 at the end; and int64 labels
    of shape (batch,), but not in prediction. In Python, use a Trainer with ``use_distributed_sampler=False``, as the
    command line does.

    Args:
        dataset: `csv` for your own texts, `generated` for made-up ones; null: your own where `path` names a file, else
            the public data set that the class is named for.
        path: `csv`: the file to train on: CSV (may be gzipped), Parquet, Excel or JSON lines; in Python also a frame of
            pandas. Public: folder to download to (`data` where null).
        test_path: File to test on; null takes `test_fraction` of the texts in `path`, stratified by class.
        columns: Names of the columns of a CSV file whose first row is a text; null: the first row has the names.
        text_columns: Columns that make up the text, joined by a space.
        label_column: Column of the class: words, or numbers.
        delimiter: What separates the cells of a CSV file; null: comma, semicolon, tab or bar, whichever the first row
            has most of.
        missing: Words that stand for a missing text or label, beside those of pandas (NA, N/A, NaN, None, null, ...).
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
        fold: `0/5` tests on the first of five parts of the training texts, and so on (`fit --folds 5` runs all).
        bad_rows: Rows that can't be used (no text or label, too many cells, ...): `error` names them, `drop` leaves
            them out and says how many there are.
        seed: Seed of the order and the random pieces; that of the run (seed_everything) when left out. The split is
            the same for every seed.
        fallback: `generated` uses made-up texts where a public set can't be downloaded, and says so; null stops there.
        cache_dir: Folder for the tokenised texts.
        **loader: drop_last, num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing or can't be used.
    """

    item = "texts"
    kind = "texts"
    input_kinds = "a .txt file, or a table such as .csv"
    metadata_type = TextMetadata
    tokens_per_batch: int | None = None
    table: Any = None  # how the user's tables are read; None: as the metadata says

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        test_path: UserFile | None = None,
        columns: list[str] | None = None,
        text_columns: list[str] = ["text"],  # noqa: B006 - it is not changed
        label_column: str = "label",
        delimiter: str | None = None,
        missing: list[str] = [],  # noqa: B006
        tokenizer: Kind = "word",
        vocab_size: PositiveInt = 20_000,
        max_tokens: PositiveInt = 256,
        long_texts: Literal["truncate", "crop"] = "truncate",
        batch_size: PositiveInt = 32,
        tokens_per_batch: PositiveInt | None = None,
        balance: Balance | None = None,
        val_fraction: HalfOpenUnitInterval = 0.1,
        test_fraction: HalfOpenUnitInterval = 0.1,
        fold: str | None = None,
        bad_rows: Policy = "error",
        seed: Seed | None = None,
        fallback: Literal["generated"] | None = None,
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed, generated=False, **loader)
        # Not for the loggers: the model has settings of the same names, and Lightning refuses two that differ. Frames
        # are no settings that a checkpoint could carry.
        files = {"path": path, "test_path": test_path}
        self.save_hyperparameters(logger=False, ignore=[key for key in files if not isinstance(files[key], str | None)])
        self.choose_source(dataset, path, fallback)
        if test_path is not None and self.dataset != "csv":
            raise UserError("data.test_path: it goes with your own texts; name these with data.path")
        if not text_columns or label_column in text_columns:
            raise UserError("data.text_columns: name the columns of the text, and not data.label_column")
        if vocab_size < SMALLEST[tokenizer]:
            raise UserError(f"data.vocab_size: it is too small for {tokenizer}; set {SMALLEST[tokenizer]} or more")
        if val_fraction + test_fraction >= 1:
            raise UserError("data.val_fraction: it leaves nothing to train on beside data.test_fraction; set less")
        if balance is not None and tokens_per_batch is not None:
            raise UserError("data.balance: it does not go with data.tokens_per_batch; leave one of them out")
        self.files: list[Source] = [self.path] if test_path is None else [self.path, test_path]
        self.table = {key: self.hparams[key] for key in _TABLE}
        self.cache_dir = Path(cache_dir).expanduser()
        self.tokens_per_batch = tokens_per_batch
        self.balance = balance
        self._evaluated: dict[str, list[Tensor]] = {}  # for each split the numbers of the texts in each batch

    # ---- what is known before `setup`, without tokenising any text

    def find_fact(self, name: str) -> Any:
        """Return what the metadata has under a name: the checkpoint's where one was loaded."""
        if self.restored:
            return getattr(self.metadata, name)
        if name != "class_names":
            return self.hparams[name]
        if self.dataset is None and not self.generated:
            return list(self.public.class_names)
        folder = self.cache_folder()
        return read_about(folder)["class_names"] if folder.is_dir() else self._corpus.class_names

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels."""
        return self.find_fact("class_names")

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def vocab_size(self) -> int:
        """Upper bound of the vocabulary: all ids are below."""
        return self.find_fact("vocab_size")

    @property
    def max_tokens(self) -> int:
        """Longest piece of a text that the model reads at once."""
        return self.find_fact("max_tokens")

    @property
    def has_test(self) -> bool:
        """Whether there are texts to test on."""
        return self.dataset != "csv" or len(self.files) > 1 or any(map(self.hparams.get, ("test_fraction", "fold")))

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of texts after `setup`."""
        contents = f"texts of up to {self.max_tokens} tokens, {self.num_classes} classes"
        return self.describe(f"{contents}, a vocabulary of up to {self.vocab_size:,}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""
        return self.cache_folder().name

    # ---- from raw texts to token ids in memory

    @cached_property
    def _corpus(self) -> Corpus:
        """The raw texts. They are read once: for the names of the classes, or else for the cache."""
        if self.dataset == "csv":
            return read_corpus(self.files, self.table)
        if self.generated:
            return make_corpus(self._num_made_up)
        return Corpus(list(self.public.class_names), *self.public.read(self.path))

    @property
    def _num_made_up(self) -> int:
        """Number of classes of made-up texts: two in place of a public set of two."""
        return 2 if self.dataset is None and len(self.public.class_names) == 2 else 4

    @cached_property
    def _digests(self) -> list[str]:
        digests = [compute_digest(file, setting) for file, setting in zip(self.files, FILES, strict=False)]
        if len(set(digests)) < len(digests):
            raise UserError("data.test_path: it has the same contents as data.path; name other texts, or leave it out")
        return digests

    @override
    def cache_folder(self) -> Any:
        if self.dataset == "csv":
            name, marks = "own-texts", [self._digests, self.table]
        elif self.generated:
            name, marks = "generated-texts", [self._num_made_up]
        else:
            name, marks = self.public.name, [file.digest for file in self.public.files]
        settings = [self.hparams[key] for key in _PREPARATION]
        digest = hashlib.sha256(repr((_VERSION, marks, settings)).encode()).hexdigest()
        return self.cache_dir / f"{name}-{digest[:12]}"

    @override
    def fill_cache(self, folder: Path) -> None:
        store_corpus(folder, self._corpus, *(self.hparams[key] for key in _PREPARATION))

    @override
    def open(self, stage: str | None) -> TextMetadata:
        self.__dict__.pop("_corpus", None)  # it is in the cache now
        about = read_about(self.cache_folder())
        self.sizes = about["sizes"]
        if self.dataset == "csv":
            warn_of_like_classes(about["class_names"], "data.label_column")
            if about["copies"]:
                rank_zero_info(
                    f"warning: {about['copies']:,} of {self.sizes['test']:,} test texts are in the training texts too, "
                    "word for word, which makes the test easier than new texts are"
                )
        settings = {name: self.hparams[name] for name in ("vocab_size", "max_tokens", "long_texts")}
        known = {"table": self.table, "generated": self.generated}
        return TextMetadata(about["class_names"], about["tokenizer"], **settings, **known)

    def encode_split(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and offsets of a split, by the tokenizer that counts: a checkpoint's can be another."""
        folder, tokenizer = self.cache_folder(), self.metadata.tokenizer
        if tokenizer == read_about(folder)["tokenizer"]:
            return open_part(folder, split, "ids"), open_part(folder, split, "offsets")
        return encode(tokenizer, read_split(folder, split))

    @override
    def samples(self, split: str) -> TokenizedTexts:
        ids, offsets = self.encode_split(split)
        return gather_texts(ids, offsets, self.labels(split), self.longest_piece(np.diff(offsets), split))

    @override
    def labels(self, split: str) -> Tensor | None:
        return torch.from_numpy(open_part(self.cache_folder(), split, "labels"))

    @override
    def write_shards(self, folder: Path, size: int) -> None:
        from litlab.data.text.streamed import write_text_shards

        splits = {split: (*self.encode_split(split), self.labels(split)) for split in self.sizes}
        write_text_shards(folder, size, self.metadata, splits)

    # ---- batches

    def longest_piece(self, lengths: np.ndarray, split: str) -> int | None:
        """Return the most tokens of a text that come into a batch, None for all; tells how many texts are cut.

        Args:
            lengths: Tokens of each text, int64 of shape (texts,).
            split: "train", "val", "test" or "predict".
        """
        if self.metadata.long_texts == "crop":
            return self.max_tokens if split == "train" else None
        cut = int((lengths > self.max_tokens).sum())
        if cut:
            limit = f"data.max_tokens ({self.max_tokens})"
            rank_zero_info(f"{cut:,} of {len(lengths):,} {split} texts are longer than {limit} and are cut")
        return self.max_tokens

    @override
    def sampler(self, samples: Any, split: str) -> EpochSampler:
        sampler = self.batch_by_length(samples.lengths, split)
        if split != "train":
            self._evaluated[split] = list(sampler.batches())
        elif self.metadata.long_texts == "crop":
            samples.sampler = sampler
        return sampler

    def batch_by_length(self, lengths: np.ndarray, split: str) -> EpochSampler:
        """Make the sampler of a split or "predict", for texts of these lengths, int64 of shape (texts,)."""
        return LengthBatches(lengths, self.batch_size, self.tokens_per_batch, **self.sampler_options(split))

    @override
    def widest(self, batch: tuple[dict[str, Tensor], Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        inputs, labels = batch
        length, tokens = self.max_tokens, self.tokens_per_batch
        texts = self.batch_size if tokens is None else max(1, tokens // length)
        return {"ids": inputs["ids"].new_zeros(texts, length)}, labels.new_zeros(texts)

    # ---- checkpoint, prediction and export

    @override
    def open_input(self, source: str) -> TokenizedTexts:
        self._predicted = read_input(source, self.table or self.metadata.table)
        ids, offsets = encode(self.metadata.tokenizer, self._predicted.tolist())
        return gather_texts(ids, offsets, None, self.longest_piece(np.diff(offsets), "predict"))

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a row per text of `predict_input`, in its order: its class, and the probability of every class.

        Args:
            outputs: Probabilities of the batches in order, each of shape (batch, class).
            path: The file; one that is there is replaced.

        Raises:
            UserError: A probability is not finite, or the file can't be written.
        """
        order = torch.cat(self._evaluated["predict"])
        probabilities = torch.cat([output.cpu() for output in outputs])[order.argsort()]
        beginnings = [" ".join(text.split())[:_SHOWN] for text in self._predicted]
        inputs = {"row": self._predicted.index.tolist(), "text": beginnings}
        write_classes(Path(path), inputs, self.class_names, probabilities)

    @override
    def serving(self) -> TextServing:
        return TextServing(self.metadata)

    # ---- what callbacks ask for

    def sample_index(self, split: str, batch_idx: int) -> Tensor:
        """Numbers of the texts, int64 of shape (batch,), in a batch of "val" or "test": these are taken by length."""
        return self._evaluated[split][batch_idx]

    def text(self, split: str, index: int) -> str:
        """One raw text, by its number in a split."""
        return read_split(self.cache_folder(), split)[index]

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of simple methods on the same texts: for each its ``test/acc`` and ``test/f1``."""
        labels, folder = self.labels("train"), self.cache_folder()
        if labels is None or "test" not in self.sizes:
            return {}
        test = open_part(folder, "test", "labels")
        predicted = {"most frequent class": np.full(len(test), labels.mode().values)}
        if len(labels) <= _MOST_FOR_BASELINE:
            from sklearn.feature_extraction.text import TfidfVectorizer
            from sklearn.pipeline import make_pipeline
            from sklearn.svm import LinearSVC

            words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", sublinear_tf=True)
            model = make_pipeline(words, LinearSVC()).fit(read_split(folder, "train"), labels)
            predicted["TF-IDF + linear SVM"] = model.predict(read_split(folder, "test"))
        return {name: classification_scores(classes, test) for name, classes in predicted.items()}
