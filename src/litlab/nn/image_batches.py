"""What is done to whole batches of images: blended for training, seen several times in evaluation."""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional as F

from litlab.errors import UserError


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


def check_image_settings(settings: dict[str, float], image_shape: tuple[int, int, int] | None) -> None:
    """Refuse what is done to images where the inputs are something else, and shifts that leave nothing of them.

    Args:
        settings: Settings of a model, 0 or false where they are off; with ``shift_tta``.
        image_shape: Channels, height and width; None where the inputs are not images.

    Raises:
        UserError: One of them is on, or too large.
    """
    name = next((name for name, value in settings.items() if value), None)
    if name is not None and image_shape is None:
        raise UserError(
            f"model.{name}: it works on images, and the data has no image_shape (model.image_shape is not set); leave "
            f"{name} out, or use data with images"
        )
    if image_shape is not None and settings["shift_tta"] >= min(image_shape[1:]):
        raise UserError(
            f"model.shift_tta: {settings['shift_tta']} pixels are too many for images of {image_shape[1]} x "
            f"{image_shape[2]} (model.image_shape); choose fewer"
        )
