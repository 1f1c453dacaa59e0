"""Texts and their classes, for training, evaluation and prediction."""

import hashlib
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.files import Frame, Source, UserFile, check_file, name_source
from litlab.data.generated import TEXT_CLASSES, make_corpus
from litlab.data.sampler import EpochSampler
from litlab.data.split import SPLITS
from litlab.data.store import fill_cache, name_cache
from litlab.data.target import Classes
from litlab.data.target_metadata import TargetMetadata
from litlab.data.text.batches import TokenizedTexts
from litlab.data.text.serving import TextMetadata, TextServing
from litlab.data.text.tokenizer import (
    KINDS,
    PADDING,
    encode,
    load_tokenizer,
    train_tokenizer,
)
from litlab.data.user_data import Table, UserData
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt
from litlab.util.text import plural

# The column of whole texts; a file is unlikely to have one of that name
TEXT = "text, joined"
_VERSION = 9  # raise it when the cache of the same texts would come out different
_PREPARATION = ("columns", "text_columns", "tokenizer", "vocab_size")  # settings that change it
_SHOWN = 80  # characters of a text in the file of predictions
_MOST_FOR_BASELINE = 200_000  # texts


class TextData(UserData):
    """Texts with a class, numbers or labels each: your own file, a public data set (in subclasses),
    or generated.

    They are tokenised once, into a cache of flat ids; batches are gathered as a whole, from texts
    of about the same length. The model gets a dict with ``ids``, int64 of shape (batch, time),
    padded with 0 at the end; and the target, for classes int64 of shape (batch,), but not in
    prediction. In Python, use a Trainer with ``use_distributed_sampler=False``, as the command line
    does.

    Args:
        dataset: `csv` for your own texts, `generated` for made-up ones; null: your own where `path`
            names a file, else the public data set that the class is named for.
        path: `csv`: the file to train on: CSV (may be gzipped), Parquet, Excel or JSON lines; in
            Python also a frame of pandas. Public: folder to download to (`data` where null).
        test_path: File to test on; null takes `test_fraction` of the texts in `path`, stratified by
            class.
        columns: Names of the columns of a CSV file whose first row is a text; null: the first row
            has the names.
        text_columns: Columns that make up the text, joined by a space.
        tokenizer: `word`: words in lower case and punctuation marks, those that come at least twice
            in training; `bpe`: pieces of words, by byte-pair encoding, also in lower case; else the
            tokenizer of a pre-trained model of transformers, by its folder or its name on
            huggingface.co, as `PretrainedText` needs it.
        vocab_size: Most entries of the vocabulary of `word` and `bpe`.
        max_tokens: Longest piece of a text, in tokens, that the model reads at once.
        long_texts: `truncate` cuts longer texts to their beginning. `crop` takes a piece at random
            in training; in evaluation it takes as many tokens of the beginning and of the end.
        batch_size: Texts per batch and process.
        test_fraction: Fraction of the texts kept for the test, where there is no `test_path`; 0 for
            none.
        fallback: `generated` uses made-up texts where a public set can't be downloaded, and says
            so; null stops there.
        cache_dir: Folder for the tokenised texts.
        **options: What is predicted, read and split, as of `UserData`.

    Raises:
        UserError: A value is not valid; later: the data is missing or can't be used.
    """

    item = "texts"
    kind = "texts"
    metadata_type = TextMetadata

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        test_path: UserFile | None = None,
        columns: list[str] | None = None,
        text_columns: list[str] = ["text"],  # noqa: B006 - it is not changed
        tokenizer: str = "word",
        vocab_size: PositiveInt = 20_000,
        max_tokens: PositiveInt = 256,
        long_texts: Literal["truncate", "crop"] = "truncate",
        batch_size: PositiveInt = 32,
        test_fraction: HalfOpenUnitInterval = 0.1,
        fallback: Literal["generated"] | None = None,
        cache_dir: str = "data/cache",
        **options: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, test_fraction=test_fraction, **options)
        # Not for the loggers: the model has settings of the same names, and Lightning refuses two
        # that differ. Frames are no settings that a checkpoint could carry.
        self.save_hyperparameters(logger=False, ignore=["path", "test_path"])
        self.choose_source(dataset if test_path is None else "csv", path, fallback)
        if {*self.targets} & {*text_columns}:
            raise UserError(
                "data.text_columns: they have data.target, which tells the answer; leave it out"
            )
        self.column_names = columns
        # By the split that each of them says
        self.files = {"train": self.path}
        if test_path is not None:
            self.files["test"] = self.find_local(test_path, "data.test_path")
        # For each split what `TokenizedTexts` takes, and the texts as `_pack` returns them
        self._stored: dict[str, Any] = {}
        # For each split, and for "predict", the numbers of the texts in each batch
        self._evaluated: dict[str, list[Tensor]] = {}

    # ---- what is known of the texts

    def survey(self) -> TextMetadata:
        """Return what the texts say, which are opened for that; of a public set what is published
        and set.
        """
        # A public set is not downloaded for this: what a network has to know is published or set
        if self.public is None or self.dataset is not None:
            return super().survey()
        settings = {name: self.hparams[name] for name in ("vocab_size", "max_tokens", "long_texts")}
        values = {"tokenizer": "", "padding": PADDING, **settings, **self._pretrained_tokenizer}
        return TextMetadata(target=Classes(["label"], list(self.public.class_names)), **values)

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of texts after `setup`."""
        vocabulary = f"a vocabulary of up to {self.vocab_size:,}"
        return self.describe(
            f"texts of up to {self.max_tokens} tokens, {self.facts.target.summary}, {vocabulary}"
        )

    # ---- from raw texts to token ids in a cache

    @cached_property
    def _pretrained_tokenizer(self) -> dict[str, Any]:
        """What `load_tokenizer` returns; {} where a tokenizer is trained on the texts."""
        name = self.hparams["tokenizer"]
        return {} if name in KINDS else load_tokenizer(name)

    @cached_property
    def _digests(self) -> list[str]:
        contents = [
            check_file(file, "data.path").read_bytes()
            if isinstance(file, str | Path)
            else file.to_csv().encode()
            for file in self.files.values()
        ]
        return [hashlib.sha256(content).hexdigest() for content in contents]

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""
        # The files themselves, what is read of them, and how they are split and tokenised
        source = self._digests if self.dataset == "csv" else self.source_name
        settings = [self.hparams[name] for name in _PREPARATION]
        decisions = self.targets, self.task, self.label_separator, self.split, self.form
        marks = _VERSION, source, settings, decisions, self.bad_rows, self._pretrained_tokenizer
        return name_cache("texts", *marks)

    def cache_folder(self) -> Path:
        return Path(self.hparams["cache_dir"]).expanduser() / self.fingerprint

    def fill_cache(self, folder: Path) -> None:
        # Read and split all texts.
        options: Any = self.hparams
        table = self._read_texts()
        by_split = {split: table.select(split) for split in SPLITS}

        copies = by_split["test"][TEXT].isin(by_split["train"][TEXT]).sum()
        if copies:
            rank_zero_info(
                f"warning: training has {plural(copies, 'test text')}, too, so results look better "
                "than they are"
            )

        # A vocabulary of the training texts alone: that of the test would tell what is rare there.
        tokens = self._pretrained_tokenizer
        if not tokens:
            tokenizer = train_tokenizer(
                by_split["train"][TEXT].tolist(), options.tokenizer, options.vocab_size
            )
            tokens = {"tokenizer": tokenizer, "vocab_size": options.vocab_size, "padding": PADDING}

        # Tokenise each split, and write all. The texts are kept, too: for plots, for baselines, and
        # for a checkpoint with another tokenizer.
        splits = {}
        for split, rows in by_split.items():
            if len(rows):
                texts = rows[TEXT].tolist()
                labels = torch.from_numpy(table.target.encode(rows))
                encoded = encode(tokens["tokenizer"], texts)
                splits[split] = {**encoded, **_pack(texts), "labels": labels}
        metadata = TargetMetadata(**self.describe_columns(table)).state_dict() | tokens
        torch.save({"metadata": metadata, "splits": splits}, folder / "texts.pt")

    def open(self, stage: str | None) -> TextMetadata:
        # `prepare_data` has filled it, on another machine perhaps
        folder = self.cache_folder()
        fill_cache(folder, self.fill_cache)
        # Mapped, so that processes of a machine share one copy in memory
        cached = torch.load(folder / "texts.pt", mmap=True, weights_only=True)
        written, self._stored = cached["metadata"], cached["splits"]
        self._tokenizer = written["tokenizer"]
        self.sizes = {split: len(stored["labels"]) for split, stored in self._stored.items()}
        # How much of a text is read is decided batch by batch: it changes nothing in the cache
        lengths = {name: self.hparams[name] for name in ("max_tokens", "long_texts")}
        return TextMetadata.load(written | lengths)

    def _read_texts(self) -> Table:
        """Read all texts, each as a whole in the column `TEXT`."""
        import pandas as pd

        # Public or made up: texts with a number of their class, and a split
        if self.dataset != "csv":
            names = TEXT_CLASSES if self.dataset else list(self.public.class_names)
            corpus = make_corpus(len(names)) if self.generated else self.public.read(self.path)
            cells = corpus[["label"]].map(names.__getitem__).astype("string")
            table = self.split_known(cells, Classes(["label"], names), corpus["split"].to_numpy())
            return replace(table, inputs=corpus[["text"]].set_axis([TEXT], axis=1))

        # One file, or one to train on and one to test on, put one below the other
        raw_of = {}
        for split, file in self.files.items():
            raw_of[split] = raw = self.read_cells(file, "data.path")
            if len(self.files) > 1:  # a row is one of a file
                raw.index = [f"{name_source(file, split)}:{row}" for row in raw.index]
        predefined = np.repeat(list(raw_of), [len(raw) for raw in raw_of.values()])
        columns = self.hparams["text_columns"]
        table = self.fit_table(
            pd.concat(raw_of.values()), dict.fromkeys(columns, "text"), predefined
        )
        return replace(table, inputs=join_texts(table.inputs, columns))

    # ---- from the cache to batches

    def samples(self, split: str) -> TokenizedTexts:
        stored = self._stored[split]
        # A checkpoint's tokenizer was trained on other texts; its network knows those ids alone
        if self.metadata.tokenizer != self._tokenizer:
            stored = stored | encode(self.metadata.tokenizer, self._unpack(split))
        return TokenizedTexts(stored, self.metadata, split)

    def labels(self, split: str) -> Tensor | None:
        return self._stored[split]["labels"] if self.class_names else None

    def sampler(self, samples: Any, split: str) -> EpochSampler:
        sampler = super().sampler(samples, split)
        # Evaluation goes by length: callbacks and predictions need the order back
        if split != "train":
            self._evaluated[split] = list(sampler.batches())
        return sampler

    def widest(self, batch: Any) -> Any:
        _, labels = batch  # in which all texts may be short
        return {"ids": labels.new_zeros(self.batch_size, self.max_tokens)}, labels.new_zeros(
            self.batch_size
        )

    # ---- checkpoint, prediction and export

    def open_input(self, source: str) -> TokenizedTexts:
        rows = self.read_input(source)
        texts = join_texts(rows, list(rows))[TEXT]
        self.row_names["text"] = texts.str[:_SHOWN].tolist()
        encoded = encode(self.metadata.tokenizer, texts.tolist())
        return TokenizedTexts(encoded, self.metadata, "predict")

    def read_cells(self, source: Source, setting: str = "--input") -> Frame:
        """Read texts to predict: a .txt file with one text per line; else a table."""
        if not str(source).endswith(".txt"):
            return super().read_cells(source, setting)
        if setting != "--input":
            raise UserError(
                f"{setting}: {source} is a .txt, which has a text a line and no target; name a "
                "table .csv or .tsv"
            )
        import pandas as pd

        # Not by `splitlines`, which also breaks a text at characters such as U+2028. Rows are
        # counted as lines are, empty ones too
        lines = check_file(str(source), "--input").read_text("utf-8-sig").split("\n")
        texts = pd.Series(lines, range(1, 1 + len(lines))).str.strip()
        texts = texts[texts != ""]
        if texts.empty:
            raise UserError(f"--input: {source} has no texts; write one a line")
        # The line is the first of the columns; the others are empty
        columns = self.hparams["text_columns"]
        return texts.to_frame(columns[0]).reindex(columns=columns)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        # Batches are of texts of about the same length: back to the order of the file
        order = torch.cat(self._evaluated["predict"]).argsort()
        super().write_predictions([torch.cat(outputs).cpu()[order]], path)

    def serving(self) -> TextServing:
        return TextServing(self.metadata)

    # ---- what callbacks ask for

    def sample_index(self, split: str, batch_idx: int) -> Tensor:
        """Numbers of the texts, int64 of shape (batch,), in a batch of "val" or "test": these are
        taken by length.
        """
        return self._evaluated[split][batch_idx]

    def text(self, split: str, index: int) -> str:
        """One raw text, by its number in a split."""
        stored = self._stored[split]
        begin, end = stored["bounds"][index : index + 2]
        return bytes(stored["bytes"][begin:end].numpy()).decode()

    def _unpack(self, split: str) -> list[str]:
        return [self.text(split, index) for index in range(self.sizes[split])]

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of a guess, and of a linear model on the words and pairs of words."""
        # A linear model of more texts would take longer than some networks
        if "test" not in self.sizes or self.sizes["train"] > _MOST_FOR_BASELINE:
            return {}
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import LinearSVC

        # Words and pairs of words, as counts by their rarity, for a linear model of the task
        train, test, target = self._stored["train"], self._stored["test"], self.facts.target
        learned, truth = train["labels"].numpy(), test["labels"].numpy()
        words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", sublinear_tf=True)
        methods: dict[str, Any] = {
            "classification": ("TF-IDF + linear SVM", LinearSVC()),
            "regression": ("TF-IDF + ridge", Ridge()),
            "labels": ("TF-IDF + logistic", OneVsRestClassifier(LogisticRegression())),
        }
        name, method = methods[target.task]

        # Labels are scored by their probabilities, see `label_scores`
        model = make_pipeline(words, method).fit(self._unpack("train"), learned)
        ask = model.predict_proba if target.task == "labels" else model.predict
        predicted = np.asarray(ask(self._unpack("test"))).reshape(truth.shape)
        return target.score_guess(learned, truth) | {name: target.score(predicted, truth)}


def _pack(texts: list[str]) -> dict[str, Tensor]:
    """Return texts as one tensor of bytes, which a process maps from the cache, and where each
    begins and ends.
    """
    # Millions of Python strings would be copied into each worker process
    encoded = [text.encode() for text in texts]
    bounds = torch.tensor([0, *accumulate(map(len, encoded))])
    return {
        "bytes": torch.frombuffer(bytearray(b"".join(encoded)), dtype=torch.uint8),
        "bounds": bounds,
    }


def join_texts(rows: Frame, columns: list[str]) -> Frame:
    """Return the texts of some columns, joined by spaces, as the column `TEXT`."""
    joined = rows[columns].fillna("").agg(" ".join, axis=1).str.strip()
    return joined.to_frame(TEXT)
