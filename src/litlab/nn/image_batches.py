"""What is done to whole batches of images: blended for training, seen several times in evaluation."""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional as F


def mixes(num_classes: int, mixup: float, cutmix: float) -> tuple[nn.Module, ...]:
    """Return torchvision's MixUp and CutMix, those whose parameter of the beta distribution is above 0.

    Each is called with images (batch, channel, height, width) and integer labels (batch,), and returns images and the
    share of each class, (batch, classes). The partner of an image is the one before it in the batch.

    Args:
        num_classes: Number of classes.
        mixup: Parameter of MixUp's distribution.
        cutmix: Parameter of CutMix's distribution.
    """
    if not (mixup or cutmix):
        return ()
    from torchvision.transforms import v2  # it takes a third of a second, which most runs need not wait for

    kinds = ((v2.MixUp, mixup), (v2.CutMix, cutmix))
    return tuple(kind(alpha=alpha, num_classes=num_classes) for kind, alpha in kinds if alpha)


def views(images: Tensor, flip: bool, shift: int) -> Iterator[Tensor]:
    """Yield images as they are, shifted and mirrored, each of shape (batch, channel, height, width).

    Args:
        images: Shape (batch, channel, height, width).
        flip: Whether each is yielded mirrored too.
        shift: Pixels by which they are shifted to the upper left, and to the lower right; 0: not at all. What a shift
            leaves empty is filled with the reflection of the border.
    """
    shifted = [images]
    if shift:
        padded = F.pad(images, (shift, shift, shift, shift), mode="reflect")
        height, width = images.shape[2:]
        shifted += [padded[:, :, top : top + height, top : top + width] for top in (2 * shift, 0)]
    for view in shifted:
        yield view
        if flip:
            yield view.flip(3)
