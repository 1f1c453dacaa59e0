"""A text file as windows of tokens."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data import ExperimentData, Metadata, uniform
from litlab.data.files import check_file
from litlab.data.generated import make_corpus
from litlab.data.predictions import write_predictions
from litlab.errors import UserError
from litlab.nn.pretrained_text import load_pretrained
from litlab.types import PositiveInt

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
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


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of tokens; indexed by a tensor, it returns a batch of ids and next ids, int64
    (batch, time).

    In training windows stand side by side, from another token in each epoch. In evaluation they
    overlap by half, and the next ids of the first half, which have little before them, are
    `NO_TARGET`, but in the first window.
    """

    sampler: Any = None  # of the loader that has this copy

    def __init__(self, ids: Tensor, length: int, train: bool) -> None:
        self.ids, self.length, self.train = ids, length, train
        self.step = length if train else length // 2

    def __len__(self) -> int:
        return max(1, (len(self.ids) - 1 - self.length) // self.step)

    def __getitem__(self, index: Tensor) -> tuple[Tensor, Tensor]:
        starts = index % len(self) * self.step
        if self.train and self.sampler is not None:
            epoch = torch.tensor([0])
            (draw,) = uniform(epoch, self.sampler.seed, self.sampler.epoch, "begin")
            starts = starts + (draw * min(self.step, len(self.ids) - 1 - self.length)).long()
        window = self.ids[starts[:, None] + torch.arange(self.length + 1)].long()
        following = window[:, 1:].clone()
        if not self.train:
            following[starts > 0, : self.length - self.step] = NO_TARGET
        return window[:, :-1], following


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
        ends = [round(len(text) * share) for share in (0.0, 0.8, 0.9, 1.0)]
        return {
            name: text[begin:end]
            for name, begin, end in zip(SHARES, ends[:-1], ends[1:], strict=True)
        }

    @property
    def description(self) -> str:
        """The text in one line."""
        return self.describe(f"windows of {self.length} tokens, {self.known.vocab_size:,} of them")

    @property
    def fingerprint(self) -> str:
        """Changes whenever the text does."""
        from hashlib import sha256

        return sha256("".join(self.texts.values()).encode()).hexdigest()[:12]

    def open(self, stage: str | None) -> TextFileMetadata:
        """Encode the text."""
        name = self.hparams["tokenizer"]
        if name == "characters":
            plain = train_tokenizer(self.texts["train"])
        else:
            plain = load_pretrained("AutoTokenizer", name, "data.tokenizer").backend_tokenizer
        self.ids = {
            split: torch.tensor(plain.encode(text).ids) for split, text in self.texts.items()
        }
        short = [split for split, ids in self.ids.items() if len(ids) < 2 * self.length]
        if short:
            raise UserError(
                f"{self.path}: the {short[0]} text has {len(self.ids[short[0]])} tokens; give "
                "more, or a smaller data.context_length"
            )
        self.sizes = {split: len(self.samples(split)) for split in self.ids}
        characters = sum(map(len, self.texts.values())) / sum(map(len, self.ids.values()))
        return TextFileMetadata(plain.to_str(), plain.get_vocab_size(), self.length, characters)

    def samples(self, split: str) -> Windows:
        return Windows(self.ids[split], self.length, split == "train")

    def open_input(self, source: str) -> "Prompts":
        """Read prompts, one a line."""
        lines = check_file(source, "--input").read_text("utf-8").splitlines()
        self._prompts = [line for line in lines if line]
        if not self._prompts:
            raise UserError(f"--input: {source} has no prompts; write one a line")
        tokenizer = Tokenizer.from_str(self.metadata.tokenizer)
        return Prompts([torch.tensor(tokenizer.encode(line).ids) for line in self._prompts])

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with each prompt and how it goes on."""
        tokenizer = Tokenizer.from_str(self.metadata.tokenizer)
        following = [tokenizer.decode(ids.tolist()) for batch in outputs for ids in batch]
        write_predictions(Path(path), {"prompt": self._prompts, "continuation": following})

    def baselines(self) -> dict[str, dict[str, float]]:
        """Score a model of n-grams of characters."""
        bits = score_ngrams(self.texts["train"], self.texts["test"], ORDER)
        return {f"{ORDER}-grams": {"test/bits_per_character": bits}}


class Prompts(Dataset[list[Tensor]]):
    """Prompts of any length; indexed by a tensor, it returns a list."""

    def __init__(self, ids: list[Tensor]) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Tensor) -> list[Tensor]:
        return [self.ids[number] for number in index.tolist()]


def train_tokenizer(text: str) -> Tokenizer:
    """Return a tokenizer of single characters; 0 is any other one."""
    vocabulary = {letter: number for number, letter in enumerate(["\ufffd", *sorted({*text})])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="\ufffd"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def score_ngrams(train: str, test: str, order: int) -> float:
    """Return the bits per character of n-grams, each mixed with the next shorter one as Witten &
    Bell 1991 (doi 10.1109/18.87000) do.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for size in range(order):
        for end in range(size, len(train)):
            counts[train[end - size : end]][train[end]] += 1
    totals = {context: (following.total(), len(following)) for context, following in counts.items()}
    bits, letters = 0.0, len({*train}) + 1
    for end, letter in enumerate(test):
        probability = 1 / letters
        for size in range(order):
            context = test[max(0, end - size) : end]
            if len(context) < size or context not in totals:
                break
            total, different = totals[context]
            probability = (counts[context][letter] + different * probability) / (total + different)
        bits -= math.log2(probability)
    return bits / len(test)
