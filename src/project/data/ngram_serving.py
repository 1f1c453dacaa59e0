"""N-gram features inside of an exported model: those of `project.data.ngram_features`, from tensors alone."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.data import GOLDEN
from litlab.data.text import PADDING, TextMetadata, TextServing
from project.data.ngram_features import NgramCounts

_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of splitmix64


class NgramServing(TextServing):
    """A `TextServing` that gives each token its n-gram features.

    Args:
        metadata: Metadata of the checkpoint.
        counts: Counts of the training texts.
    """

    def __init__(self, metadata: TextMetadata, counts: NgramCounts) -> None:
        super().__init__(metadata)
        self.tables = nn.ModuleList(_Table(*table) for table in counts.tables())

    def with_features(self, ids: Tensor) -> dict[str, Tensor]:
        """Return ids and features, float32 (batch, time, order x class)."""
        hashes, features = _mix(ids), []
        for number, table in enumerate(self.tables):
            whole = ids != PADDING
            if number:  # an n-gram begins where its last token is one of the text
                last = F.pad(ids, (0, number))[:, number:]
                hashes, whole = _mix(hashes * _signed(GOLDEN) + last), last != PADDING
            features.append(table(hashes) * whole.unsqueeze(-1))
        return {"ids": ids, "ngram_features": torch.cat(features, dim=-1)}


class _Table(nn.Module):
    """Class log-ratios by the hash of an n-gram; 0 for those that are not in it."""

    hashes: Tensor
    ratios: Tensor

    def __init__(self, hashes: Tensor, ratios: Tensor) -> None:
        super().__init__()
        self.register_buffer("hashes", hashes)  # ascending
        self.register_buffer("ratios", ratios)

    def forward(self, wanted: Tensor) -> Tensor:
        """Look up hashes of shape (batch, time): (batch, time, class)."""
        # A binary search by hand: ONNX has none.
        place = torch.zeros_like(wanted)
        size = len(self.hashes)
        for power in reversed(range(math.ceil(math.log2(size + 1)))):
            further = place + 2**power
            known = self.hashes[(further - 1).clamp(max=size - 1)]
            place = torch.where((further <= size) & (known <= wanted), further, place)
        place = (place - 1).clamp(min=0)  # of the last hash that is not above
        return self.ratios[place].float() * (self.hashes[place] == wanted).unsqueeze(-1)


def _mix(values: Tensor) -> Tensor:
    """Return the finaliser of splitmix64, as `litlab.util.splitmix`, of states that are int64 with the same bits."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        values = (values ^ _shifted(values, shift)) * _signed(multiplier)
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Shift to the right as if there were no sign."""
    return (values >> bits) & (2 ** (64 - bits) - 1)


def _signed(value: int) -> int:
    """Return the int64 with the bits of a uint64."""
    return value - 2**64 if value >= 2**63 else value
