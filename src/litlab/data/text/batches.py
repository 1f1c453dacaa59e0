"""What batches of texts become, however they are read: ordered by length, predicted, served."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from typing_extensions import override

from litlab.data.bad_rows import Policy
from litlab.data.length_batches import LengthBatches
from litlab.data.module import ExperimentData
from litlab.data.sampler import EpochSampler
from litlab.data.table import write_classes
from litlab.data.text.memory import StoredTexts
from litlab.data.text.metadata import TextMetadata
from litlab.data.text.predictions import in_input_order, read_input, shorten
from litlab.data.text.reading import Rows
from litlab.data.text.serving import TextServing
from litlab.data.text.tokenizer import encode

_NAMES = {"train": "training", "val": "validation", "test": "test", "predict": "input"}


class TextBatches(ExperimentData[TextMetadata]):
    """A DataModule whose batches are token ids, of shape (batch, time), padded with 0 at the end, with labels.

    A subclass defines `class_names`, `vocab_size` and `max_tokens`.

    Args:
        *arguments: As of the class that comes next.
        **settings: As of `ExperimentData`.
    """

    item = "texts"
    input_kinds = "a .csv or .txt file"
    metadata_type = TextMetadata
    trained_settings: ClassVar[tuple[str, ...]] = ("max_tokens", "long_texts")  # a checkpoint's win
    tokens_per_batch: int | None = None  # instead of `batch_size`
    # Of the files to predict; columns are those of the training where they are None.
    columns: list[str] | None = None
    text_columns: list[str] | None = None
    bad_rows: Policy = "error"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._evaluated: dict[str, list[Tensor]] = {}  # for each split the numbers of the texts in each batch
        self._reported: set[str] = set()
        self._predicted: tuple[Rows, Tensor] | None = None  # and the order in which they come

    @property
    @abstractmethod
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Upper bound of the vocabulary: all ids are below."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """Longest piece of a text that the model reads at once."""

    # ---- batches

    def in_memory(self, ids: np.ndarray, offsets: np.ndarray, split: str, labels: np.ndarray | None) -> StoredTexts:
        """Make a data set of texts in memory.

        Args:
            ids: Ids of all texts one after the other, int32 of shape (tokens,).
            offsets: Where each text starts, and the number of tokens, int64 of shape (texts + 1,).
            split: "train", "val", "test" or "predict".
            labels: int64 of shape (texts,); None for texts to predict.
        """
        longest = self.longest_piece(np.diff(offsets), split)
        return StoredTexts(ids, offsets, labels, longest)

    def longest_piece(self, lengths: np.ndarray, split: str) -> int | None:
        """Return the most tokens of a text that come into a batch, None for all; tells once how many texts are cut.

        Args:
            lengths: Tokens of each text, int64 of shape (texts,).
            split: "train", "val", "test" or "predict".
        """
        crop = self.known_metadata.long_texts == "crop"
        cut = int((lengths > self.max_tokens).sum())
        if cut and not crop and split not in self._reported:
            self._reported.add(split)
            limit = f"data.max_tokens ({self.max_tokens})"
            rank_zero_info(f"{cut:,} of {len(lengths):,} {_NAMES[split]} texts are longer than {limit} and are cut")
        return None if crop and split != "train" else self.max_tokens

    @override
    def sampler(self, samples: Any, split: str) -> EpochSampler:
        batches = self.batches_by_length(samples.lengths, split)
        if split in ("val", "test"):
            self._evaluated[split] = list(batches.batches())
        if split == "train" and self.known_metadata.long_texts == "crop":
            samples.crop_at_random(batches)
        return batches

    def batches_by_length(self, lengths: np.ndarray, split: str) -> EpochSampler:
        """Make the sampler of a split or "predict", for texts of these lengths, int64 of shape (texts,)."""
        return LengthBatches(lengths, self.batch_size, self.tokens_per_batch, **self.sampler_options(split))

    @override
    def widest(self, batch: tuple[dict[str, Tensor], Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        inputs, labels = batch
        length, tokens = self.max_tokens, self.tokens_per_batch
        texts = self.batch_size if tokens is None else max(1, tokens // length)
        wide = {name: value.new_zeros((texts, length, *value.shape[2:])) for name, value in inputs.items()}
        return wide, labels.new_zeros(texts)

    def sample_index(self, split: str, batch_idx: int) -> Tensor:
        """Numbers of the texts, int64 of shape (batch,), in a batch of "val" or "test": these are taken by length."""
        return self._evaluated[split][batch_idx]

    # ---- checkpoint, prediction and export

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for name in self.trained_settings:
            trained, here = getattr(self.known_metadata, name), self.hparams[name]
            if here not in (None, trained):
                rank_zero_info(f"data.{name}: {trained}, as the checkpoint was trained (here it is {here})")

    @override
    def open_input(self, source: str) -> StoredTexts:
        metadata = self.known_metadata
        columns, text_columns = self.columns or metadata.columns, self.text_columns or metadata.text_columns
        rows = read_input(source, columns, text_columns, metadata.label_column, self.bad_rows)
        texts = self.in_memory(*encode(metadata.tokenizer, rows.texts), "predict", None)
        self._predicted = rows, torch.cat(list(self.sampler(texts, "predict").batches()))
        return texts

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a CSV file with a row per text of `predict_input`: its class, and the probability of every class.

        Args:
            outputs: Probabilities of the batches in order, each of shape (batch, class).
            path: The file; one that is there is replaced.

        Raises:
            UserError: A probability is not finite, or the file can't be written.
        """
        assert self._predicted is not None  # `open_input` was called
        rows, order = self._predicted
        columns = {"row": rows.numbers, "text": [shorten(text) for text in rows.texts]}
        names = [f"row {number}" for number in rows.numbers]
        write_classes(Path(path), columns, names, self.class_names, in_input_order(outputs, order))

    @override
    def serving(self) -> TextServing:
        return TextServing(self.known_metadata)
