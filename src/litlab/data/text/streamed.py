"""Texts in shards, in a folder or object storage: read as they come, with any number of processes and workers."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from typing_extensions import override

from litlab.data.loading import LoaderError
from litlab.data.sampler import EpochSampler
from litlab.data.shards import ShardSplit
from litlab.data.streamed import StreamedData
from litlab.data.text.batches import TextBatches
from litlab.data.text.memory import crop_starts
from litlab.data.text.metadata import TextMetadata
from litlab.data.text.shard_batches import TextShardBatches
from litlab.data.text.shard_files import id_type, read_lengths
from litlab.data.text.tokenizer import PADDING, decode
from litlab.errors import UserError
from litlab.types import PositiveInt, Seed


@dataclass(frozen=True)
class ShardMetadata(TextMetadata):
    """Metadata of texts that are token ids already."""

    def check_same(self, here: Any) -> None:
        """Refuse data of other classes, or whose ids mean other words.

        Raises:
            UserError: Classes or tokenizers differ.
        """
        super().check_same(here)
        if self.tokenizer != here.tokenizer:
            raise UserError(
                "data.path: the checkpoint was trained with another tokenizer than the shards were written with; "
                "use the shards of its run"
            )


class StreamedTexts(StreamedData[TextMetadata], TextBatches):
    """Texts with one class each, in shards that the command ``shards`` has written.

    For data that is larger than the memory, or lies in object storage. The model gets what `TextData` gives it.
    Batches hold texts of about the same length.

    Args:
        path: Folder of the shards, or an address such as ``s3://bucket/folder``.
        max_tokens: Longest piece of a text, in tokens, that the model reads at once; null: as the shards were written,
            which hold whole texts.
        long_texts: `truncate` cuts longer texts to their beginning. `crop` takes a piece at random in training, and
            whole texts in evaluation, of which the model reads beginning and end. Null: as the shards were written.
        batch_size: Texts per batch and process. All batches of an epoch are of about the same size, at most this.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads more files at once.
        seed: Seed of the order and the random pieces; that of the run (seed_everything) when left out.
        cache_dir: Folder where shards of object storage are kept, once they have been read.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: Later: shards are missing or damaged.
    """

    metadata_type = ShardMetadata

    def __init__(
        self,
        path: str,
        *,
        max_tokens: PositiveInt | None = None,
        long_texts: Literal["truncate", "crop"] | None = None,
        batch_size: PositiveInt = 32,
        shuffle_shards: PositiveInt = 8,
        seed: Seed | None = None,
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super().__init__(path, shuffle_shards, batch_size=batch_size, seed=seed, cache_dir=cache_dir, **loader)
        self.save_hyperparameters(logger=False)  # the model has settings of the same names, perhaps from a checkpoint

    @property
    def written(self) -> ShardMetadata:
        """Metadata of the shards, with `max_tokens` and `long_texts` of this DataModule where they are set."""
        own = {name: self.hparams[name] for name in self.trained_settings if self.hparams[name] is not None}
        return ShardMetadata(**{**self.about["metadata"], **own})

    @property
    def vocab_size(self) -> int:
        """Upper bound of the vocabulary: all ids are below."""
        return self.current.vocab_size

    @property
    def max_tokens(self) -> int:
        """Longest piece of a text that the model reads at once."""
        return self.current.max_tokens

    @property
    def description(self) -> str:
        """The data set in one line."""
        return self.described(f"texts of up to {self.max_tokens} tokens")

    @override
    def samples(self, split: str) -> "ShardTexts":
        lengths = read_lengths(self.shards, split)
        longest = self.longest_piece(lengths, split)
        return ShardTexts(self.shards.split(split), lengths, self.written.vocab_size, longest)

    @override
    def batches_by_length(self, lengths: np.ndarray, split: str) -> EpochSampler:
        if split == "predict":
            return super().batches_by_length(lengths, split)
        shards, options = self.sizes_of_shards(split), self.sampler_options(split)
        return TextShardBatches(lengths, shards, self.batch_size, self.shuffle_shards, **options)

    def text(self, split: str, index: int) -> str:
        """One whole text, by its number in a split: in lower case, unknown words as [UNK]."""
        (sample,) = self.shards.split(split).read(torch.tensor([index]))
        return decode(self.written.tokenizer, np.frombuffer(sample["ids"], id_type(self.written.vocab_size)))


class ShardTexts(Dataset[tuple[dict[str, Tensor], Tensor]]):
    """Texts of one split in shards; indexed by a tensor, it returns a padded batch.

    Args:
        split: The shards.
        lengths: Tokens of each text, int64 of shape (texts,).
        vocab_size: Upper bound of the vocabulary.
        max_tokens: Longest piece of a text that comes into a batch; None: texts come whole.
    """

    def __init__(self, split: ShardSplit, lengths: np.ndarray, vocab_size: int, max_tokens: int | None) -> None:
        self.split = split
        self.full_lengths = lengths
        self.lengths = lengths if max_tokens is None else np.minimum(lengths, max_tokens)
        self.vocab_size = vocab_size
        self.crops: EpochSampler | None = None

    def crop_at_random(self, sampler: EpochSampler) -> None:
        """Cut texts that are too long somewhere, not always at the end: anew in every epoch of a sampler."""
        self.crops = sampler

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.lengths)

    def read(self, index: Tensor) -> tuple[list[np.ndarray], Tensor]:
        """Read whole texts by their numbers, int64 of shape (batch,).

        Returns:
            The ids of each, int64 of shape (tokens,), and the labels, int64 of shape (batch,).

        Raises:
            LoaderError: A shard is damaged, or out of reach.
        """
        samples, kind = self.split.read(index), id_type(self.vocab_size)
        texts = []
        for number, sample in zip(index.tolist(), samples, strict=True):
            whole = len(sample["ids"]) == self.full_lengths[number] * kind.itemsize
            text = np.frombuffer(sample["ids"] if whole else b"", kind).astype(np.int64)
            if not len(text) or text.max() >= self.vocab_size:
                raise LoaderError(f"data.path: {self.split.where}: text {number} is damaged; write the shards again")
            texts.append(text)
        return texts, torch.tensor([sample["label"] for sample in samples])

    def __getitem__(self, index: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Take a batch, by the numbers of the texts, int64 of shape (batch,).

        Returns:
            As `StoredTexts` does.

        Raises:
            LoaderError: A shard is damaged, or out of reach.
        """
        (texts, labels), rows = self.read(index), index.numpy()
        lengths = self.lengths[rows]
        starts = np.zeros_like(lengths)
        if self.crops is not None:
            starts = crop_starts(self.crops, rows, self.full_lengths[rows] - lengths)
        places = zip(texts, starts.tolist(), lengths.tolist(), strict=True)
        pieces = [torch.from_numpy(text[start : start + length]) for text, start, length in places]
        return {"ids": pad_sequence(pieces, batch_first=True, padding_value=PADDING)}, labels
