"""What is done to whole batches of images: blended for training, seen several times in evaluation."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def make_mix(num_classes: int, mixup: float, cutmix: float) -> Callable[[Tensor, Tensor], Any] | None:
    """Return torchvision's MixUp or CutMix, or a random choice of the two for each batch; None if both are 0.

    It takes images (batch, channel, height, width) and labels (batch,), and returns images and the share of each class,
    (batch, classes).

    Args:
        num_classes: Number of classes.
        mixup: Parameter of the beta distribution of MixUp.
        cutmix: That of CutMix.
    """
    if not (mixup or cutmix):
        return None
    from torchvision.transforms import v2  # it takes a third of a second, which most runs need not wait for

    kinds = ((v2.MixUp, mixup), (v2.CutMix, cutmix))
    mixes = [kind(alpha=alpha, num_classes=num_classes) for kind, alpha in kinds if alpha]
    return mixes[0] if len(mixes) == 1 else v2.RandomChoice(mixes)


def average_views(network: Callable[[Tensor], Tensor], images: Tensor, flip: bool, shift: int) -> Tensor:
    """Return the mean output, (batch, ...), of a network for images, and for images that are mirrored and shifted.

    Args:
        network: Called once, as quantization by torch.export wants each layer once in the graph.
        images: Shape (batch, channel, height, width).
        flip: Whether each view is also seen mirrored.
        shift: Pixels to the upper left, and to the lower right; 0: none. What a shift leaves empty is filled with the
            reflection of the border.
    """
    views = [images]
    if shift:
        padded = F.pad(images, [shift] * 4, mode="reflect")
        height, width = images.shape[2:]
        views += [padded[:, :, 2 * shift :, 2 * shift :], padded[:, :, :height, :width]]
    if flip:
        views += [view.flip(3) for view in views]
    return network(torch.cat(views)).unflatten(0, (len(views), images.shape[0])).mean(dim=0)
