"""Texts and their classes, for training, evaluation and prediction."""

from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader

from litlab.data.bad_rows import Policy, count_text
from litlab.data.cache import alone_in, damage, is_whole
from litlab.data.length_batches import LengthBatches
from litlab.data.module import ExperimentData
from litlab.data.paths import user_path
from litlab.data.text.baselines import baseline_results
from litlab.data.text.catalog import Catalog, check_same
from litlab.data.text.corpus import Corpus, Source
from litlab.data.text.memory import StoredTexts
from litlab.data.text.ngram_cache import evidence_folder, load_counts, store_evidence
from litlab.data.text.opening import open_input, open_split
from litlab.data.text.predictions import in_input_order, read_input, write_csv
from litlab.data.text.reading import Rows
from litlab.data.text.stored import Recipe, load, store, stored_classes
from litlab.data.text.tokenizer import SMALLEST, Kind
from litlab.errors import UserError

_SPLITS = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), None: ("train", "val", "test")}
_NAMES = {"train": "training", "val": "validation", "test": "test"}
# What a checkpoint's model was built for: there the checkpoint has the last word.
_FIXED = ("vocab_size", "max_tokens", "long_texts", "ngrams")


class TextData(ExperimentData):
    """Texts with one class each: a public data set, your own CSV file, or generated.

    They are tokenised once, into a cache of flat ids; batches are gathered as a whole, from texts of about the same
    length. The model gets a dict with ``ids``, int64 of shape (batch, time), padded with 0 at the end, and, with
    `ngrams`, ``ngram_features``, float32 of shape (batch, time, feature); and int64 labels of shape (batch,), but not
    in prediction. Use the trainer with ``use_distributed_sampler=False``.

    Args:
        dataset: A public data set by its name, `csv` for your own texts, `generated` for made-up ones.
        path: Public sets: folder to download to (`data` where null). `csv`: the file to train on; may be gzipped.
        test_path: CSV file to test on; null takes `test_fraction` of the texts in `path`, each class alike.
        columns: Names of the CSV columns, where the first row is a text; null: the first row has the names.
        text_columns: CSV columns that make up the text, joined by a space.
        label_column: CSV column of the class: words, or numbers.
        tokenizer: `word`: words in lower case and punctuation marks, those that come at least twice in training;
            `bpe`: pieces of words, by byte-pair encoding, also in lower case.
        vocab_size: Most entries of the vocabulary.
        max_tokens: Longest piece of a text, in tokens, that the model reads at once.
        long_texts: `truncate` cuts longer texts to their beginning. `crop` takes a piece at random in training, and
            whole texts in evaluation, of which the model reads beginning and end.
        ngrams: Longest n-gram whose class log-ratios are given for each token (Wang & Manning 2012); 0 for none.
        batch_size: Texts per batch and process.
        tokens_per_batch: Instead of `batch_size`: tokens per batch and process, padding included.
        val_fraction: Share of the training texts kept for validation; 0 for none.
        test_fraction: Share of the texts kept for the test, where there is no `test_path`; 0 for none.
        bad_rows: CSV rows that can't be used (no text or label, too many fields, ...): `error` names them, `drop` goes
            on without them and says how many there are.
        seed: Seed of the order and the random pieces; that of the run (seed_everything) when left out. The split is
            the same for every seed.
        fallback: `generated` uses made-up texts where a public set can't be had, and says so; null stops there.
        cache_dir: Folder for the tokenised texts.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value makes no sense; later: the data is missing, incomplete or damaged.
    """

    def __init__(
        self,
        dataset: Literal["ag_news", "imdb", "csv", "generated"] = "ag_news",
        path: str | None = None,
        test_path: str | None = None,
        columns: list[str] | None = None,
        text_columns: list[str] = ["text"],  # noqa: B006 - it is not changed
        label_column: str = "label",
        tokenizer: Kind = "word",
        vocab_size: int = 20_000,
        max_tokens: int = 256,
        long_texts: Literal["truncate", "crop"] = "truncate",
        ngrams: int = 0,
        batch_size: int = 32,
        tokens_per_batch: int | None = None,
        val_fraction: float = 0.1,
        test_fraction: float = 0.1,
        bad_rows: Policy = "error",
        seed: int | None = None,
        fallback: Literal["generated"] | None = None,
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        # Not for the loggers: the model has settings of the same names, and Lightning refuses two that differ.
        self.save_hyperparameters(logger=False)
        least = SMALLEST[tokenizer]
        for name, value, good, hint in (
            ("path", path, path is not None or dataset != "csv", "dataset csv needs your file"),
            ("test_path", test_path, test_path is None or dataset == "csv", "it goes with dataset csv"),
            ("text_columns", text_columns, len(text_columns) > 0, "name at least one"),
            ("text_columns", text_columns, len(set(text_columns)) == len(text_columns), "name each column once"),
            ("text_columns", text_columns, label_column not in text_columns, f"{label_column} is data.label_column"),
            ("vocab_size", vocab_size, vocab_size >= least, f"{tokenizer} needs at least {least}"),
            ("max_tokens", max_tokens, max_tokens >= 1, "it must be at least 1"),
            ("ngrams", ngrams, 0 <= ngrams <= 5, "it must be from 0 to 5"),
            ("batch_size", batch_size, batch_size >= 1, "it must be at least 1"),
            (
                "tokens_per_batch",
                tokens_per_batch,
                tokens_per_batch is None or tokens_per_batch >= 1,
                "it must be at least 1",
            ),
            ("val_fraction", val_fraction, 0 <= val_fraction < 1, "it must be at least 0 and below 1"),
            ("test_fraction", test_fraction, 0 <= test_fraction < 1, "it must be at least 0 and below 1"),
            (
                "val_fraction",
                val_fraction,
                dataset != "csv" or test_path is not None or val_fraction + test_fraction < 1,
                "with data.test_fraction it must be below 1",
            ),
        ):
            if not good:
                raise UserError(f"data.{name}: {'null' if value is None else value} is not valid; {hint}")
        place = user_path(path or "data", "data.path")
        test_place = None if test_path is None else user_path(test_path, "data.test_path")
        self.catalog = Catalog(dataset, place, test_place, columns, list(text_columns), label_column, bad_rows)
        self.tokenizer: Kind = tokenizer
        self.batch_size, self.tokens_per_batch = batch_size, tokens_per_batch
        self.val_fraction, self.test_fraction = val_fraction, test_fraction
        self.seed = seed or 0
        self.fallback: Literal["generated"] | None = fallback
        self.cache_dir = user_path(cache_dir, "data.cache_dir")
        self._settings = {name: self.hparams[name] for name in _FIXED}

        self.generated = dataset == "generated"
        self.sizes: dict[str, int] = {}
        self._dropped = 0  # rows
        self._corpus: Corpus | None = None  # until it is in the cache
        self._sets: dict[str, StoredTexts] = {}
        self._evaluated: dict[str, list[Tensor]] = {}  # for each split the numbers of the texts in each batch
        self._reported: set[str] = set()
        self._predicted: tuple[Rows, LengthBatches] | None = None
        self._state: dict[str, Any] = {}  # see state_dict
        self._restored = False

    # ---- facts that are known before anything is tokenised

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""
        if self._restored:
            return list(self._state["class_names"])
        known = self._source.class_names or stored_classes(self._folder)
        return list(known or self._read().class_names)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def vocab_size(self) -> int:
        """Upper bound of the vocabulary: all ids are below."""
        return self._setting("vocab_size")

    @property
    def max_tokens(self) -> int:
        """Longest piece of a text that the model reads at once."""
        return self._setting("max_tokens")

    @property
    def ngram_features(self) -> int:
        """N-gram features per token: orders times classes."""
        orders = self._setting("ngrams")
        return orders * self.num_classes if orders else 0

    @property
    def has_val(self) -> bool:
        """Whether there are texts to validate on."""
        return self.val_fraction > 0

    @property
    def has_test(self) -> bool:
        """Whether there are texts to test on."""
        return self._source.has_test or self.test_fraction > 0

    @property
    def description(self) -> str:
        """The data set in one line; with the numbers of texts after `setup`."""
        name = self.catalog.describe(self.generated)
        counts = " / ".join(f"{count:,} {split}" for split, count in self.sizes.items())
        unit = "words" if self.tokenizer == "word" else "pieces of words"
        return (
            f"{name}: {counts + ' ' if counts else ''}texts of up to {self.max_tokens} tokens, "
            f"{self.num_classes} classes, at most {self.vocab_size:,} {unit}{count_text(self._dropped)}"
        )

    def _setting(self, name: str) -> Any:
        return (self._state if self._restored else self._settings)[name]

    @property
    def _source(self) -> Source:
        return self.catalog.stand_in if self.generated else self.catalog.source

    def _read(self) -> Corpus:
        """The raw texts. They are read once: for the names of the classes, or else for the cache."""
        if self._corpus is None:
            self._corpus = self._source.read()
        return self._corpus

    @property
    def _recipe(self) -> Recipe:
        vocab_size = self._settings["vocab_size"]
        return Recipe(self._source, self.tokenizer, vocab_size, self.val_fraction, self.test_fraction)

    @property
    def _folder(self) -> Path:
        return self._recipe.folder(self.cache_dir)

    @property
    def fingerprint(self) -> str:
        """Changes whenever the data or their preparation do."""
        return self._folder.name

    # ---- from files to memory

    def prepare_data(self) -> None:
        """Download, tokenise and count what is not in the cache yet, or resort to generated texts. On one process."""
        if self.trainer is not None and self.trainer.predicting:
            return
        orders = self._settings["ngrams"]
        needed = [self._folder, *([evidence_folder(self._folder, orders)] if orders else [])]
        if any(damage(folder) is not None for folder in needed):
            with alone_in(self.cache_dir):
                self._fill_cache(orders)
        self._corpus = None

    def _fill_cache(self, orders: int) -> None:
        whole = is_whole(self._folder)
        if not whole and not self.generated and not self.catalog.ensure_downloaded(self.fallback):
            self.generated = True
            whole = is_whole(self._folder)
        if not whole:
            store(self._recipe, self._read(), self.cache_dir)
        self._corpus = None  # its memory is needed
        if orders and not is_whole(evidence_folder(self._folder, orders)):
            store_evidence(load(self._folder), orders)

    def setup(self, stage: str | None = None) -> None:
        """Open the cache, and report which texts are cut.

        Args:
            stage: "fit", "validate", "test" or "predict"; None: all but prediction.

        Raises:
            UserError: There are no texts for this stage, or a checkpoint was trained on other classes.
        """
        if stage == "predict":
            return
        if self.trainer is not None:
            self.generated = self.trainer.strategy.broadcast(self.generated)
        stored = load(self._folder)
        self._corpus = None
        self.sizes = {split: len(stored.array(split, "labels")) for split in stored.splits}
        self._dropped = sum(stored.dropped.values())
        for note in stored.told(stage):
            rank_zero_info(note)
        if stage in ("validate", "test") and _SPLITS[stage][0] not in stored.splits:
            split = _SPLITS[stage][0]
            raise UserError(f"data.{split}_fraction is 0: {self.catalog.path} has no {split} texts; set it above 0")
        if self._restored:
            check_same(self._state["class_names"], stored.class_names)
            return
        orders = self._settings["ngrams"]
        self._state = {
            "class_names": stored.class_names,
            "tokenizer": stored.tokenizer,
            **self._settings,
            "counts": load_counts(self._folder, orders).state_dict() if orders else None,
            "columns": self.catalog.columns,
            "text_columns": self.catalog.text_columns,
            "label_column": self.catalog.label_column,
            "generated": self.generated,
        }

    def teardown(self, stage: str) -> None:
        """Let go of the texts.

        Args:
            stage: What has ended.
        """
        self._sets.clear()

    def _texts(self, split: str) -> StoredTexts:
        """The texts of a split, by the tokenizer and the counts of the checkpoint where one was loaded."""
        if split in self._sets:
            return self._sets[split]
        self._sets[split] = open_split(load(self._folder), split, self._state, self._settings["ngrams"])
        self._report_cut(self._sets[split], _NAMES[split])
        return self._sets[split]

    def _report_cut(self, texts: StoredTexts, name: str) -> None:
        """Say how many texts are cut, once per split."""
        cut = int((texts.full_lengths > self.max_tokens).sum())
        if cut and self._setting("long_texts") == "truncate" and name not in self._reported:
            self._reported.add(name)
            limit = f"data.max_tokens ({self.max_tokens})"
            rank_zero_info(f"{cut:,} of {len(texts):,} {name} texts are longer than {limit} and are cut")

    # ---- batches

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of training texts of about the same length, in an order that depends on (seed, epoch) only."""
        texts = self._texts("train")
        sampler = self._batches(texts, "train")
        if self._setting("long_texts") == "crop":
            texts.crop_at_random(sampler)
        return self.loader(texts, sampler)

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches of the validation texts, from long to short; none where there is no validation split."""
        if "val" in self.sizes:
            return self._evaluation_loader("val")
        return self.no_loader()

    def test_dataloader(self) -> DataLoader[Any]:
        """Batches of the test texts, from long to short."""
        return self._evaluation_loader("test")

    def _evaluation_loader(self, split: str) -> DataLoader[Any]:
        texts = self._texts(split)
        sampler = self._batches(texts, split)
        self._evaluated[split] = list(sampler.batches())
        return self.loader(texts, sampler)

    def predict_dataloader(self) -> DataLoader[Any]:
        """Batches of the texts in the file `predict_input`, from long to short."""
        source = self.check_prediction(self._restored, "a .csv or .txt file")
        unset = self.catalog.text_columns == ["text"]  # then the columns are those of the training
        rows = read_input(
            source,
            self.catalog.columns or self._state["columns"],
            self._state["text_columns"] if unset else self.catalog.text_columns,
            self._state["label_column"],
            self.catalog.bad_rows,
        )
        texts = open_input(rows.texts, self._state)
        self._report_cut(texts, "input")
        sampler = self._batches(texts, "input")
        self._predicted = rows, sampler
        return self.loader(texts, sampler)

    def _batches(self, texts: StoredTexts, split: str) -> LengthBatches:
        options = self.sampler_options(split, "texts")
        return LengthBatches(texts.lengths, self.batch_size, self.tokens_per_batch, **options)

    # ---- what others ask for

    def text(self, split: str, index: int) -> str:
        """One raw text.

        Args:
            split: "train", "val" or "test".
            index: Its number in the split.
        """
        return load(self._folder).text(split, index)

    def sample_index(self, split: str, batch_idx: int) -> Tensor:
        """Say which texts a batch of this process holds: evaluation takes them by length.

        Args:
            split: "val" or "test".
            batch_idx: Number of the batch.

        Returns:
            Numbers of the texts in the split, int64 of shape (batch,).
        """
        return self._evaluated[split][batch_idx]

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of simple methods, trained on the same training texts, for a comparison.

        Returns:
            For each method its ``test/acc`` and ``test/f1``; computed once, then kept in the cache.
        """
        return baseline_results(load(self._folder)) if self.has_test else {}

    # ---- what a checkpoint needs to serve raw texts

    def state_dict(self) -> dict[str, Any]:
        """Class names, tokenizer, n-gram counts, the settings that the model was built for, the columns."""
        return dict(self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what the checkpoint was trained with; settings that differ here are listed.

        Args:
            state_dict: What `state_dict` returned.

        Raises:
            UserError: The data at hand have other classes.
        """
        if self._state:
            check_same(state_dict["class_names"], self._state["class_names"])
        for name, here in self._settings.items():
            if state_dict[name] != here:
                rank_zero_info(f"data.{name}: {state_dict[name]}, as the checkpoint was trained (here it is {here})")
        self._state = dict(state_dict)
        self._restored = True
        self._sets.clear()

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a CSV file with a row per text of `predict_input`: its class, and the probability of every class.

        Args:
            outputs: Probabilities of the batches in order, each of shape (batch, class).
            path: The file; one that is there is replaced.

        Raises:
            UserError: It can't be written.
        """
        assert self._predicted is not None  # predict_dataloader was called
        rows, sampler = self._predicted
        write_csv(Path(path), rows, self.class_names, in_input_order(outputs, sampler.order))
