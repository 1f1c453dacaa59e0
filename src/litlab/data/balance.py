"""Classes that are drawn more evenly than they occur, as the training order of an epoch."""

import torch
from torch import Tensor

from litlab.data.class_counts import Balance, class_counts


class BalancedDraw:
    """Draws the samples of an epoch such that classes come evenly, or by the square root of their counts.

    An epoch keeps its length, and each class has a fixed share of it. Within a class each sample comes n times or
    n + 1 times; who gets the additional draw is chosen anew in each epoch.

    Args:
        labels: Class of each training sample, int64 of shape (samples,).
        balance: "even": as many draws for each class; "sqrt": by the square root of its count.
        class_names: Name of each class.

    Raises:
        UserError: There is a single class, or one has no training samples.
    """

    def __init__(self, labels: Tensor, balance: Balance, class_names: list[str]) -> None:
        labels = labels.cpu()
        self.counts = class_counts(labels, class_names, "data.balance")
        self.size = len(labels)
        self.members = labels.argsort(stable=True).split(self.counts.tolist())
        self.draws = shared_out(self.size, self.counts.double().pow(0.5 if balance == "sqrt" else 0.0))
        self._names, self._balance = class_names, balance

    @property
    def description(self) -> str:
        """What the rarest and the most frequent class get, in one line."""
        parts = [
            f"class {self._names[place]!r} ({self.counts[place]:,}) is drawn {self.draws[place]:,} times"
            for place in (int(self.counts.argmin()), int(self.counts.argmax()))
        ]
        return f"data.balance: {self._balance}: in each epoch {', '.join(parts)}"

    def __call__(self, generator: torch.Generator) -> Tensor:
        """Return the samples of an epoch in random order, int64 of shape (samples,).

        The second draw of a sample is its number plus the number of all samples, the third plus twice that, and so on:
        the sample is the remainder, and augmentation can draw by the whole number.
        """
        drawn = []
        for members, count in zip(self.members, self.draws.tolist(), strict=True):
            rounds, rest = divmod(count, len(members))
            drawn += [members + number * self.size for number in range(rounds)]
            chosen = torch.randperm(len(members), generator=generator)[:rest]
            drawn.append(members[chosen] + rounds * self.size)
        together = torch.cat(drawn)
        return together[torch.randperm(len(together), generator=generator)]


def shared_out(total: int, weights: Tensor) -> Tensor:
    """Share a whole number out by weights: parts are rounded such that they add up (the largest remainders go up).

    Args:
        total: What is shared.
        weights: Positive, float64 of shape (parts,).

    Returns:
        int64 of shape (parts,).
    """
    exact = weights / weights.sum() * total
    parts = exact.floor().long()
    upwards = (exact - parts).argsort(descending=True, stable=True)[: total - int(parts.sum())]
    parts[upwards] += 1
    return parts
