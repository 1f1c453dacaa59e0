"""What the n-grams of a text say about its class, beside the embeddings of its tokens."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.data import PADDING

FOLDS = 10
_FACTOR, _PRIME = 48_271, 2**31 - 1  # a product stays far below 2**63


class NGramLogOdds(nn.Module):
    """Vectors for the tokens of a text from the log-odds of each class, given the n-grams that
    begin there (Wang & Manning 2012, aclanthology.org/P12-2018).

    The log-odds are counted once, in the training texts, by `count`. A text's own label must not be
    among what it is told: in training each text gets those of the other nine tenths of the texts.

    Args:
        longest: Tokens of the longest n-gram; shorter ones are used, too.
        buckets: Number of hashes; n-grams of the same hash share their log-odds (Weinberger et al.
            2009, arXiv:0902.2206).
        num_classes: Number of classes.
        embed_dim: Size of a token's vector.
        hidden: Units of the hidden layer between log-odds and vectors.
    """

    def __init__(
        self, longest: int, buckets: int, num_classes: int, embed_dim: int, hidden: int = 64
    ) -> None:
        super().__init__()
        self.longest, self.buckets = longest, buckets
        # In half precision, and only those of all texts are saved
        self.log_odds: Tensor
        self.fold_log_odds: Tensor | None
        self.register_buffer("log_odds", torch.zeros(buckets, num_classes, dtype=torch.float16))
        self.register_buffer("fold_log_odds", None, persistent=False)
        self.hidden = nn.Linear(longest * num_classes, hidden)
        self.output = nn.Linear(hidden, embed_dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Shape (batch, time, embed_dim) from token ids, shape (batch, time)."""
        hashes = self.hash(ids)
        if self.training and self.fold_log_odds is not None:
            log_odds = self.fold_log_odds[self.choose_fold(ids)[:, None, None], hashes]
        else:
            log_odds = self.log_odds[hashes]
        log_odds = log_odds.flatten(2).to(self.hidden.weight.dtype)
        return self.output(F.gelu(self.hidden(log_odds)))

    def hash(self, ids: Tensor) -> Tensor:
        """Return the hashes of the n-grams that begin at each token, shape (batch, time, longest);
        0 where the text ends before them.
        """
        padded = F.pad(ids, (0, self.longest - 1), value=PADDING)
        value, hashes = torch.zeros_like(ids), []
        for shift in range(self.longest):
            last = padded[:, shift : shift + ids.shape[1]]
            value = (value * _FACTOR + last) % _PRIME
            bucket = 1 + (value * _FACTOR + shift) % _PRIME % (self.buckets - 1)
            hashes.append(bucket.masked_fill(last == PADDING, 0))
        return torch.stack(hashes, dim=2)

    @staticmethod
    def choose_fold(ids: Tensor) -> Tensor:
        """Return the tenth of the texts that each belongs to, by what it says: shape (batch,)."""
        places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        return (ids * places).sum(dim=1) * _FACTOR % _PRIME % FOLDS  # padding is 0

    @torch.no_grad()
    def count(self, batches: Iterable[tuple[dict[str, Tensor], Tensor]]) -> None:
        """Set the log-odds, by the texts of each class that have an n-gram, and of the others.

        Args:
            batches: {"ids": token ids of shape (batch, time)} and classes, shape (batch,).
        """
        buckets, classes = self.log_odds.shape
        counts, texts = torch.zeros(FOLDS, buckets, classes), torch.zeros(FOLDS, classes)
        for inputs, labels in batches:
            folds = self.choose_fold(inputs["ids"])
            # Each n-gram once a text
            hashes = self.hash(inputs["ids"]).flatten(1).sort(dim=1).values
            is_new = (hashes != F.pad(hashes, (1, 0), value=0)[:, :-1]).float()
            counts.index_put_((folds[:, None], hashes, labels[:, None]), is_new, accumulate=True)
            texts.index_put_((folds, labels), torch.ones(len(labels)), accumulate=True)

        all_counts, all_texts = counts.sum(dim=0), texts.sum(dim=0)
        self.log_odds.copy_(compute_log_odds(all_counts, all_texts))
        self.fold_log_odds = torch.stack(
            [
                compute_log_odds(all_counts - count, all_texts - number).half()
                for count, number in zip(counts, texts, strict=True)
            ]
        ).to(self.log_odds.device)


def compute_log_odds(counts: Tensor, texts: Tensor) -> Tensor:
    """Return for each class how much more often its texts have an n-gram than others do, log of
    the ratio; 0 of n-grams that none has.

    Args:
        counts: Texts of each class that have it, shape (n-gram, class).
        texts: Texts of each class, shape (class,).
    """
    total = counts.sum(dim=1, keepdim=True)
    odds = (counts + 1) / (texts + 2) * (texts.sum() - texts + 2) / (total - counts + 1)
    return odds.log().masked_fill(total == 0, 0.0)
