"""Texts in shards, in a folder or object storage: read as they come, with any number of processes and workers."""

from typing import Any, Literal

import torch
from torch import Tensor

from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import Shards
from litlab.data.text.datamodule import TextData, TokenizedTexts
from litlab.errors import UserError
from litlab.types import PositiveInt


class ShardedTexts(TokenizedTexts):
    """Texts of one split in shards: the part has ``shards``, their number of ``samples``, and ``shuffle_shards``."""

    def make_sampler(self, batch_size: int, **options: Any) -> ShardBatches:
        sizes, together = self.part["samples"], self.part["shuffle_shards"]
        return ShardBatches(sizes, batch_size, together, self.lengths, **options)

    def read(self, numbers: Tensor) -> list[Tensor]:
        samples = self.part["shards"].read(numbers)
        return [torch.frombuffer(bytearray(sample["ids"]), dtype=torch.int32) for sample in samples]


class StreamedTexts(TextData):
    """Texts with one class each, in shards that the command ``shards`` has written.

    For data that is larger than the memory, or lies in object storage. The model gets what `TextData` gives it. Batches
    hold texts of about the same length.

    Args:
        path: Folder of the shards, or an address such as ``s3://bucket/folder``.
        max_tokens: Longest piece of a text, in tokens, that the model reads at once; null: as the shards were written,
            which hold whole texts.
        long_texts: As of `TextData`; null: as the shards were written.
        batch_size: Texts per batch and process. All batches of an epoch are of about the same size, at most this.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads more files at once.
        cache_dir: Folder where shards of object storage are kept, once they have been read.
        **loader: seed, num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: Later: shards are missing or damaged.
    """

    table: Any = None  # as of the shards
    data_set = ShardedTexts

    def __init__(
        self,
        path: str,
        *,
        max_tokens: PositiveInt | None = None,
        long_texts: Literal["truncate", "crop"] | None = None,
        batch_size: PositiveInt = 32,
        shuffle_shards: PositiveInt = 8,
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super(TextData, self).__init__(batch_size=batch_size, **loader)
        self.save_hyperparameters(logger=False)
        self.shards = Shards(path, cache_dir)
        self._parts, self._evaluated = {}, {}

    def open_parts(self) -> dict[str, Any]:
        written = self.shards.metadata(self.item)
        if self.restored and self.metadata.tokenizer != written["tokenizer"]:
            raise UserError(
                f"data.path: {self.shards.where} has other tokens than the checkpoint; use those of its run"
            )
        for split, part in self.shards.about["splits"].items():
            facts = {name: torch.tensor(part[name]) for name in ("lengths", "labels")}
            settings = {"shards": self.shards.split(split), "shuffle_shards": self.hparams["shuffle_shards"]}
            self._parts[split] = {**part, **facts, **settings}
        return written

    @property
    def source_name(self) -> str:
        return f"{'GENERATED texts in' if self.generated else 'shards'} {self.shards.where}"

    @property
    def fingerprint(self) -> str:
        return self.shards.about["fingerprint"]

    def cache_folder(self) -> None:
        return None

    def text(self, split: str, index: int) -> str:
        """One whole text, by its number in a split: in lower case, unknown words as [UNK]."""
        from tokenizers import Tokenizer

        (ids,) = self.samples(split).read(torch.tensor([index]))
        return Tokenizer.from_str(self.metadata.tokenizer).decode(ids.tolist()).strip()
