"""A text file as windows of tokens."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import StackDataset

from examples.language_model.ngrams import score_ngrams
from litlab.data import ExperimentData, Metadata
from litlab.data.files import check_file
from litlab.data.generated import make_corpus
from litlab.data.predictions import write_predictions
from litlab.data.series.windows import Windows
from litlab.errors import UserError
from litlab.nn.pretrained_text import load_pretrained
from litlab.types import PositiveInt

SHARES = {"train": (0.0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1.0)}
NO_TARGET = -100  # what cross-entropy ignores
ORDER = 6  # of the n-gram model


@dataclass(frozen=True)
class TextFileMetadata(Metadata):
    """Metadata of a text.

    Args:
        tokenizer: The tokenizer as JSON.
        vocab_size: Token ids are below it.
        context_length: Tokens that are read at once.
        characters_per_token: Mean over the whole text.
    """

    fixed = ("tokenizer", "context_length")
    tokenizer: str
    vocab_size: int
    context_length: int
    characters_per_token: float


class TextFile(ExperimentData):
    """A text whose first 80 % train a language model, the next 10 % validate and the last test it.

    Args:
        path: A file of text in UTF-8; null: made-up texts.
        tokenizer: `characters`, or the tokenizer of a causal model of transformers, by its folder
            or its name on huggingface.co, as `PretrainedCausal` needs it.
        context_length: Tokens of a window.
        batch_size: Windows per batch and process.
        **loader: As of `ExperimentData`.
    """

    item, kind, own_files = "windows", "text", ("text",)
    metadata_type = TextFileMetadata

    def __init__(
        self,
        path: str | None = None,
        *,
        tokenizer: str = "characters",
        context_length: PositiveInt = 128,
        batch_size: PositiveInt = 32,
        **loader: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, **loader)
        self.save_hyperparameters(logger=False)
        self.choose_source("generated" if path is None else "text", path)
        self.length = context_length

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each split."""
        if self.generated:
            text = "\n".join(make_corpus(4)["text"])
        else:
            text = check_file(self.path, "data.path").read_text("utf-8")
        return {
            name: text[slice(*(round(share * len(text)) for share in shares))]
            for name, shares in SHARES.items()
        }

    @property
    def description(self) -> str:
        """The text in one line."""
        return self.describe(f"windows of {self.length} tokens, {self.facts.vocab_size:,} of them")

    @property
    def fingerprint(self) -> str:
        """Changes whenever the text does."""
        from hashlib import sha256

        return sha256("".join(self.texts.values()).encode()).hexdigest()[:12]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        name = self.hparams["tokenizer"]
        if name == "characters":
            return train_tokenizer(self.texts["train"])
        return load_pretrained("AutoTokenizer", name, "data.tokenizer").backend_tokenizer

    @cached_property
    def ids(self) -> dict[str, Tensor]:
        """The tokens of each split, int64 (tokens,)."""
        encode = self.tokenizer.encode
        return {split: torch.tensor(encode(text).ids) for split, text in self.texts.items()}

    def open(self, stage: str | None) -> TextFileMetadata:
        """Encode the text, once for all stages."""
        short = [split for split, ids in self.ids.items() if len(ids) < 2 * self.length]
        if short:
            raise UserError(
                f"{self.path}: the {short[0]} text has {len(self.ids[short[0]])} tokens; give "
                "more, or a smaller data.context_length"
            )
        self.sizes = {split: len(self.samples(split)) for split in self.ids}
        characters = sum(map(len, self.texts.values())) / sum(map(len, self.ids.values()))
        tokenizer, size = self.tokenizer.to_str(), self.tokenizer.get_vocab_size()
        return TextFileMetadata(tokenizer, size, self.length, characters)

    def samples(self, split: str) -> Windows:
        """Windows overlap by half: in training each token is seen in two of them, in evaluation it
        is scored in the one that has more before it.
        """
        ids = self.ids[split][:, None]
        starts = torch.arange(0, len(ids) - self.length, self.length // 2)
        return Windows({"past": ids}, starts, self.length, 1)

    def transform(self, batch: Any, epoch: int | None) -> Any:
        """Return ids and next ids, both int64 (batch, time); prompts as they are."""
        if "past" not in batch:
            return batch
        ids = torch.cat([batch["past"], batch["future"]], dim=1)[:, :, 0]
        following, half = ids[:, 1:], self.length - self.length // 2
        if epoch is None:
            was_scored = torch.arange(self.length, device=ids.device) < half
            following = following.masked_fill(was_scored & (batch["start"][:, None] > 0), NO_TARGET)
        return ids[:, :-1], following

    def open_input(self, source: str) -> StackDataset:
        """Read prompts, one a line."""
        lines = check_file(source, "--input").read_text("utf-8").splitlines()
        self.prompts = [line for line in lines if line]
        if not self.prompts:
            raise UserError(f"--input: {source} has no prompts; write one per line")
        tokenizer = Tokenizer.from_str(self.metadata.tokenizer)
        ids = [torch.tensor(tokenizer.encode(line).ids) for line in self.prompts]
        lengths = torch.tensor([*map(len, ids)])
        tensors: Any = {"ids": pad_sequence(ids, batch_first=True), "length": lengths}
        return StackDataset(**tensors)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with each prompt and how it goes on."""
        tokenizer = Tokenizer.from_str(self.metadata.tokenizer)
        following = [tokenizer.decode(ids.tolist()) for batch in outputs for ids in batch]
        write_predictions(Path(path), {"prompt": self.prompts, "continuation": following})

    def baselines(self) -> dict[str, dict[str, float]]:
        """Score a model of n-grams of characters."""
        bits = score_ngrams(self.texts["train"], self.texts["test"], ORDER)
        return {f"{ORDER}-grams": {"test/bits_per_character": bits}}


def train_tokenizer(text: str) -> Tokenizer:
    """Return a tokenizer of single characters; 0 is any other one."""
    vocabulary = {letter: number for number, letter in enumerate(["\ufffd", *sorted({*text})])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="\ufffd"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer
