"""Texts and their classes, for training, evaluation and prediction."""

import hashlib
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.classes import Balance
from litlab.data.frames import Policy, UserFile
from litlab.data.length_batches import LengthBatches
from litlab.data.module import ExperimentData
from litlab.data.predictions import write_classes
from litlab.data.sampler import EpochSampler
from litlab.data.scores import classification_scores
from litlab.data.split import split_samples
from litlab.data.store import fill_cache
from litlab.data.text.generated import CLASSES, make_corpus
from litlab.data.text.reading import compute_digest, read_corpus, read_input
from litlab.data.text.serving import TextMetadata, TextServing
from litlab.data.text.store import Read, TokenizedTexts, read_flat, read_texts, read_tokens, store_corpus
from litlab.data.text.tokenizer import Kind, encode
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed

_VERSION = 3  # raise it when the arrays of the same texts would come out different
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
        delimiter: What separates the cells of a CSV file; null: the one that makes the most columns.
        missing: Words that stand for a missing value, beside nothing, NA, N/A, NaN, None, null and the like.
        tokenizer: `word`: words in lower case and punctuation marks, those that come at least twice in training;
            `bpe`: pieces of words, by byte-pair encoding, also in lower case.
        vocab_size: Most entries of the vocabulary.
        max_tokens: Longest piece of a text, in tokens, that the model reads at once.
        long_texts: `truncate` cuts longer texts to their beginning. `crop` takes a piece at random in training; in
            evaluation it takes as many tokens of the beginning and of the end.
        batch_size: Texts per batch and process.
        tokens_per_batch: Instead of `batch_size` in training: tokens per batch and process, padding included.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts (`sqrt`); null: as they
            are. An epoch keeps its length, so samples of rare classes come several times, others not in every epoch.
        val_fraction: Fraction of the training texts kept for validation; 0 for none.
        test_fraction: Fraction of the texts kept for the test, where there is no `test_path`; 0 for none.
        fold: `0/5` tests on the first of five parts of the training texts, and so on (`fit --folds 5` runs all).
        bad_rows: Rows that can't be used (no text, no label, too many cells): `error` names them, `drop` leaves them
            out and says how many there are.
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
        super().__init__(batch_size=batch_size, seed=seed, **loader)
        # Not for the loggers: the model has settings of the same names, and Lightning refuses two that differ. Frames
        # are no settings that a checkpoint could carry.
        files = {"path": path, "test_path": test_path}
        self.save_hyperparameters(logger=False, ignore=[key for key in files if not isinstance(files[key], str | None)])
        self.choose_source(dataset if test_path is None else "csv", path, fallback)
        if label_column in text_columns:
            raise UserError("data.text_columns: they have data.label_column, which tells the answer; leave it out")
        if balance is not None and tokens_per_batch is not None:
            raise UserError("data.balance: it does not go with data.tokens_per_batch; leave one of them out")
        self.files = [self.path] if test_path is None else [self.path, test_path]
        named = {"columns": columns, "text_columns": text_columns, "label_column": label_column}
        self.table = {**named, "delimiter": delimiter, "missing": list(missing), "bad_rows": bad_rows}
        self.cache_dir = Path(cache_dir).expanduser()
        self.tokens_per_batch = tokens_per_batch
        self.balance = balance
        self._evaluated: dict[str, list[Tensor]] = {}  # for each split the numbers of the texts in each batch

    # ---- what is known of the texts

    def find_fact(self, name: str) -> Any:
        """Return what is set under a name, or what the data or a checkpoint say, once that counts or nothing is set."""
        if self.metadata is None and self.hparams.get(name) is not None:
            return self.hparams[name]
        if self.metadata is None:
            self.setup()
        return getattr(self.metadata, name)

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels."""
        if self.metadata is None and self.dataset is None and self.public is not None:
            return list(self.public.class_names)  # before it is downloaded
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
        """Whether there are texts to test on; before `setup` it is taken that there are."""
        return not self.sizes or "test" in self.sizes

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of texts after `setup`."""
        contents = f"texts of up to {self.max_tokens} tokens, {self.num_classes} classes"
        return self.describe(f"{contents}, a vocabulary of up to {self.vocab_size:,}")

    # ---- from raw texts to token ids in a cache

    @cached_property
    def _digests(self) -> list[str]:
        return [compute_digest(file) for file in self.files]

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""
        marks = self._digests if self.dataset == "csv" else self.source_name
        names = ("tokenizer", "vocab_size", "val_fraction", "test_fraction", "fold")
        settings = [self.table, *(self.hparams[name] for name in names)]
        digest = hashlib.sha256(repr((_VERSION, marks, settings)).encode()).hexdigest()
        return f"texts-{digest[:12]}"

    def cache_folder(self) -> Any:
        return self.cache_dir / self.fingerprint

    def fill_cache(self, folder: Path) -> None:
        if self.dataset == "csv":
            names, corpus = read_corpus(self.files, self.table)
        else:
            names = CLASSES if self.dataset else list(self.public.class_names)
            corpus = make_corpus(len(names)) if self.generated else self.public.read(self.path)
        options = cast(Any, self.hparams)
        labels, fractions = corpus["label"].to_numpy(), (options.val_fraction, options.test_fraction)
        corpus["split"] = split_samples(corpus["split"].to_numpy(), *fractions, labels=labels, fold=options.fold)
        store_corpus(folder, names, corpus, options.tokenizer, options.vocab_size)

    def open(self, stage: str | None) -> TextMetadata:
        folder, options = self.cache_folder(), cast(Any, self.hparams)
        fill_cache(folder, self.fill_cache)
        self._stored = stored = read_tokens(folder)
        self.sizes = {split: len(part["labels"]) for split, part in stored["splits"].items()}
        reading = options.vocab_size, options.max_tokens, options.long_texts
        return TextMetadata(stored["class_names"], stored["tokenizer"], *reading, self.table, self.generated)

    # ---- from the cache to batches

    def samples(self, split: str) -> TokenizedTexts:
        part, tokenizer = self._stored["splits"][split], self.metadata.tokenizer
        ids, offsets = part["ids"], part["offsets"]
        if tokenizer != self._stored["tokenizer"]:  # a checkpoint's, of other texts
            ids, offsets = encode(tokenizer, read_texts(self.cache_folder())[split])
        return self.cut_texts(partial(read_flat, ids, offsets, part["labels"]), offsets.diff(), split)

    def cut_texts(self, read: Read, lengths: Tensor, split: str) -> TokenizedTexts:
        """Make the data set of a split or "predict", and tell how many of its texts are not read as a whole.

        Args:
            read: As of `TokenizedTexts`.
            lengths: Tokens of each text, int64 of shape (texts,).
            split: The split.
        """
        known = self.metadata
        longer = int((lengths > known.max_tokens).sum())
        if longer:
            rank_zero_info(
                f"{longer:,} of {len(lengths):,} {split} texts are longer than data.max_tokens ({known.max_tokens}): "
                f"data.long_texts is {known.long_texts}"
            )
        if split == "train":
            return TokenizedTexts(read, lengths, known.max_tokens)
        return TokenizedTexts(read, lengths, known.longest, both_ends=known.reads_both_ends)

    def labels(self, split: str) -> Tensor | None:
        return self._stored["splits"][split]["labels"]

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

    def widest(self, batch: Any) -> Any:
        inputs, labels = batch
        tokens = self.tokens_per_batch or self.batch_size * self.max_tokens
        texts = max(1, tokens // self.max_tokens)
        return {"ids": inputs["ids"].new_zeros(texts, self.max_tokens)}, labels.new_zeros(texts)

    def write_shards(self, folder: Path, size: int) -> None:
        from litlab.data.text.streamed import write_text_shards

        write_text_shards(folder, size, self)

    # ---- checkpoint, prediction and export

    def open_input(self, source: str) -> TokenizedTexts:
        self._predicted = read_input(source, self.table or self.metadata.table)
        ids, offsets = encode(self.metadata.tokenizer, self._predicted.tolist())
        return self.cut_texts(partial(read_flat, ids, offsets, None), offsets.diff(), "predict")

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

    def serving(self) -> TextServing:
        return TextServing(self.metadata)

    # ---- what callbacks ask for

    def sample_index(self, split: str, batch_idx: int) -> Tensor:
        """Numbers of the texts, int64 of shape (batch,), in a batch of "val" or "test": these are taken by length."""
        return self._evaluated[split][batch_idx]

    def text(self, split: str, index: int) -> str:
        """One raw text, by its number in a split."""
        return read_texts(self.cache_folder())[split][index]

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of simple methods on the same texts: for each its ``test/acc`` and ``test/f1``."""
        labels = self.labels("train")
        if labels is None or "test" not in self.sizes or len(labels) > _MOST_FOR_BASELINE:
            return {}
        from sklearn.dummy import DummyClassifier
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import LinearSVC

        words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", sublinear_tf=True)
        models = {"most frequent class": DummyClassifier(), "TF-IDF + linear SVM": make_pipeline(words, LinearSVC())}
        texts, truth = read_texts(self.cache_folder()), self._stored["splits"]["test"]["labels"].numpy()
        fitted = {name: model.fit(texts["train"], labels.numpy()) for name, model in models.items()}
        return {name: classification_scores(model.predict(texts["test"]), truth) for name, model in fitted.items()}
