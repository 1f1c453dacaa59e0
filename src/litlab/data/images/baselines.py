"""What a model of images is compared with: a method that needs no training."""

from collections.abc import Iterator

import torch
from torch import Tensor

from litlab.data.images.memory import StoredImages
from litlab.data.scores import classification_scores


def nearest_class_mean(train: StoredImages, test: StoredImages, num_classes: int) -> dict[str, float]:
    """Give each test image the class whose mean training image is nearest (Rocchio 1971), by the squared distance.

    Args:
        train: The training images, as they are.
        test: The test images, of the same shape.
        num_classes: Number of classes.

    Returns:
        ``test/acc`` and ``test/f1`` (macro), from 0 to 1.
    """
    sums = counts = torch.zeros(num_classes, 1)
    for pixels, labels in _blocks(train):
        members = torch.nn.functional.one_hot(labels, num_classes).float()  # (batch, class)
        sums, counts = sums + members.T @ pixels, counts + members.sum(0)[:, None]
    means = sums / counts.clamp(min=1)
    # |x - m|^2 is least where x m - |m|^2 / 2 is largest. A class without training images is never the nearest.
    offsets = (means.square().sum(1) / 2).masked_fill(counts[:, 0] == 0, torch.inf)
    predicted = torch.cat([(pixels @ means.T - offsets).argmax(1) for pixels, _ in _blocks(test)])
    return classification_scores(predicted.numpy(), test.labels.cpu().numpy())


def _blocks(images: StoredImages, size: int = 2048) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pixels from 0 to 1, float32 (some, pixel), and labels, int64 (some,), on the CPU."""
    for index in torch.arange(len(images)).split(size):
        batch = images[index]
        yield batch["image"].cpu().flatten(1).float() / 255, batch["label"].cpu()
