"""Texts in shards, in a folder or object storage: read as they come, with any number of processes and workers."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from litlab.data.sampler import EpochSampler
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import Shards, ShardSplit, write_about, write_split
from litlab.data.text.datamodule import TextData
from litlab.data.text.serving import TextMetadata
from litlab.data.text.store import TokenizedTexts
from litlab.data.text.tokenizer import decode
from litlab.types import PositiveInt, Seed

_LENGTHS = "lengths"  # a folder beside those of the splits, with one sample: tokens of each text by split, as int32
_POOL = 50  # batches that are put together anew: fewer are more random, more have less padding


class ShardMetadata(TextMetadata):
    """Metadata of texts that are token ids already: they mean something to their own tokenizer only."""

    fixed: ClassVar[tuple[str, ...]] = ("class_names", "vocabulary")

    @property
    def vocabulary(self) -> str:
        """A short name of the tokenizer."""
        return hashlib.sha256(self.tokenizer.encode()).hexdigest()[:8]


class StreamedTexts(TextData):
    """Texts with one class each, in shards that the command ``shards`` has written.

    For data that is larger than the memory, or lies in object storage. The model gets what `TextData` gives it. Batches
    hold texts of about the same length.

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
        super(TextData, self).__init__(batch_size=batch_size, seed=seed, generated=False, **loader)
        self.save_hyperparameters(logger=False)
        self.shards = Shards(path, cache_dir)
        self.shuffle_shards = shuffle_shards
        self._evaluated = {}

    @override
    def open(self, stage: str | None) -> ShardMetadata:
        written = self.shards.metadata(self.item)
        self.sizes = {split: sum(self.shards.sizes(split)) for split in self.shards.about["splits"]}
        self.generated = written["generated"]  # as made-up data can be written, too
        settings = {name: self.hparams[name] or written[name] for name in ("max_tokens", "long_texts")}
        return ShardMetadata(**written | settings)

    @override
    def find_fact(self, name: str) -> Any:
        return getattr(self.metadata if self.restored else self.open(None), name)

    @property
    def source_name(self) -> str:
        return f"{'GENERATED texts in' if self.generated else 'shards'} {self.shards.where}"

    @property
    def has_test(self) -> bool:
        return "test" in self.shards.about["splits"]

    @property
    def fingerprint(self) -> str:
        return self.shards.about["fingerprint"]

    @override
    def cache_folder(self) -> None:
        return None

    @override
    def samples(self, split: str) -> TokenizedTexts:
        (stored,) = self.shards.split(_LENGTHS).read(torch.tensor([0]))
        lengths = np.frombuffer(stored[split], "<i4").astype(np.int64)
        kind = choose_id_type(self.shards.metadata(self.item)["vocab_size"])
        take = partial(_take, self.shards.split(split), kind)
        return TokenizedTexts(take, lengths, self.longest_piece(lengths, split))

    @override
    def batch_by_length(self, lengths: np.ndarray, split: str) -> EpochSampler:
        if split == "predict":
            return super().batch_by_length(lengths, split)
        options = self.sampler_options(split)
        return TextShardBatches(lengths, self.shards.sizes(split), self.batch_size, self.shuffle_shards, **options)

    @override
    def labels(self, split: str) -> None:
        return None

    @override
    def text(self, split: str, index: int) -> str:
        """One whole text, by its number in a split: in lower case, unknown words as [UNK]."""
        ids, *_ = self.samples(split).take(np.array([index]))
        return decode(self.metadata.tokenizer, ids.numpy())


class TextShardBatches(ShardBatches):
    """The batches of `ShardBatches`, 50 at a time sorted by length.

    Consecutive batches of an epoch make a pool. The texts of a pool are sorted by length and cut into batches of the
    sizes they had, which come in random order in training. So all that `ShardBatches` says of an epoch holds here, too.

    Args:
        lengths: Length of each text, int64 of shape (texts,), as the model gets it.
        shards: Number of texts in each shard.
        batch_size: Texts per batch and process, at most.
        shuffle_shards: As of `ShardBatches`.
        **options: As of `EpochSampler`.
    """

    def __init__(
        self, lengths: np.ndarray, shards: Sequence[int], batch_size: int, shuffle_shards: int, **options: Any
    ) -> None:
        super().__init__(shards, batch_size, shuffle_shards, **options)
        self.lengths = torch.from_numpy(lengths)

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        # The same on all processes: their batches of a training step are equally far down their pools, so none waits
        # for another's longer texts.
        generator = torch.Generator().manual_seed(self.epoch_seed)
        batches = super().batches()
        while pool := list(islice(batches, _POOL)):
            texts = torch.cat(pool)
            texts = texts[self.lengths[texts].argsort(descending=True, stable=True)]
            parts = texts.split([len(batch) for batch in pool])
            order = torch.randperm(len(pool), generator=generator) if self.train else torch.arange(len(pool))
            yield from (parts[place] for place in order.tolist())


def write_text_shards(folder: Path, size: int, metadata: TextMetadata, splits: Mapping[str, Any]) -> None:
    """Write texts into shards: those to train on in random order, as a file can be sorted by class.

    A sample has ``ids``, bytes of `choose_id_type`, and a ``label``.

    Args:
        folder: The folder to fill.
        size: Bytes of a shard.
        metadata: Metadata of the texts.
        splits: The texts of each split: ids, int32 of shape (tokens,); offsets, int64 of shape (texts + 1,); labels,
            int64 of shape (texts,).
    """
    kind = choose_id_type(metadata.vocab_size)
    written, lengths = {}, {}
    for split, (ids, offsets, labels) in splits.items():
        count = len(labels)
        order = np.random.default_rng(0).permutation(count) if split == "train" else np.arange(count)
        samples = (
            {"ids": ids[offsets[row] : offsets[row + 1]].astype(kind).tobytes(), "label": int(labels[row])}
            for row in order.tolist()
        )
        written[split] = write_split(folder / split, samples, count, size)
        lengths[split] = np.diff(offsets)[order].astype("<i4").tobytes()
    beside = {_LENGTHS: write_split(folder / _LENGTHS, [lengths], 1, size)}
    write_about(folder, {"kind": "texts", "metadata": metadata.state_dict(), "splits": written, "beside": beside})


def choose_id_type(vocab_size: int) -> np.dtype:
    """Return how shards hold the ids of a vocabulary: as uint16 where all of them fit, else as int32."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<i4")


def _take(shards: ShardSplit, kind: np.dtype, rows: np.ndarray) -> tuple[Tensor, np.ndarray, Tensor]:
    samples = shards.read(torch.from_numpy(rows))
    texts = [np.frombuffer(sample["ids"], kind).astype(np.int64) for sample in samples]
    starts = np.cumsum([0, *map(len, texts[:-1])])
    labels = torch.tensor([sample["label"] for sample in samples])
    return torch.from_numpy(np.concatenate(texts)), starts, labels
