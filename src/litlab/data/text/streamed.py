"""Texts in shards, in a folder or object storage: read as they come, with any number of processes and workers."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from litlab.data.sampler import EpochSampler
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import Shards, ShardSplit, write_about, write_split
from litlab.data.text.datamodule import TextData
from litlab.data.text.serving import TextMetadata
from litlab.data.text.store import TokenizedTexts
from litlab.errors import UserError
from litlab.types import PositiveInt, Seed


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

    def open(self, stage: str | None) -> TextMetadata:
        written = self.shards.metadata(self.item)
        self.sizes = {split: sum(self.shards.sizes(split)) for split in self.shards.about["splits"]}
        self.generated = written["generated"]  # as made-up data can be written, too
        if self.restored and self.metadata.tokenizer != written["tokenizer"]:
            raise UserError(
                f"data.path: {self.shards.where} has other tokens than the checkpoint; use those of its run"
            )
        settings = {name: self.hparams[name] or written[name] for name in ("max_tokens", "long_texts")}
        return TextMetadata(**written | settings)

    @property
    def source_name(self) -> str:
        return f"{'GENERATED texts in' if self.generated else 'shards'} {self.shards.where}"

    @property
    def fingerprint(self) -> str:
        return self.shards.about["fingerprint"]

    def cache_folder(self) -> None:
        return None

    def samples(self, split: str) -> TokenizedTexts:
        lengths = torch.tensor(self.shards.about["lengths"][split])
        return self.cut_texts(partial(read_shards, self.shards.split(split)), lengths, split)

    def batch_by_length(self, lengths: np.ndarray, split: str) -> EpochSampler:
        if split == "predict":
            return super().batch_by_length(lengths, split)
        shards, options = self.shards.sizes(split), self.sampler_options(split)
        return ShardBatches(shards, self.batch_size, self.shuffle_shards, lengths=lengths, **options)

    def labels(self, split: str) -> None:
        return None

    def text(self, split: str, index: int) -> str:
        """One whole text, by its number in a split: in lower case, unknown words as [UNK]."""
        from tokenizers import Tokenizer

        (ids,), _ = read_shards(self.shards.split(split), torch.tensor([index]))
        return Tokenizer.from_str(self.metadata.tokenizer).decode(ids.tolist()).strip()


def write_text_shards(folder: Path, size: int, data: TextData) -> None:
    """Write texts into shards: those to train on in random order, as a file can be sorted by class.

    Args:
        folder: The folder to fill.
        size: Bytes of a shard.
        data: The texts.
    """
    splits, lengths = {}, {}
    for split, count in data.sizes.items():
        random = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        order = random if split == "train" else torch.arange(count)
        texts, labels = data.samples(split).read(order)
        assert labels is not None
        samples = (
            {"ids": ids.numpy().tobytes(), "label": int(label)} for ids, label in zip(texts, labels, strict=True)
        )
        splits[split] = write_split(folder / split, samples, count, size)
        lengths[split] = [len(ids) for ids in texts]
    metadata = data.metadata.state_dict()
    write_about(folder, {"kind": data.item, "metadata": metadata, "splits": splits, "lengths": lengths})


def read_shards(shards: ShardSplit, numbers: Tensor) -> tuple[list[Tensor], Tensor]:
    """Return token ids and labels of texts in shards, as `TokenizedTexts` asks for them."""
    samples = shards.read(numbers)
    texts = [torch.tensor(np.frombuffer(sample["ids"], "<i4")) for sample in samples]
    return texts, torch.tensor([sample["label"] for sample in samples])
