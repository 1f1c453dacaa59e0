"""Further changes to training images: classes that a config names in ``data.augment.steps``."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from litlab.data.images.draws import uniform
from litlab.errors import UserError

Draw = Callable[[str], Tensor]


class AugmentStep(nn.Module, ABC):
    """A random change to a batch of training images; a subclass says which.

    It takes random numbers from `draw` alone. They depend only on (seed, epoch, number of the image, name of the draw):
    neither the batch nor the number of processes matters, and a resumed run repeats them exactly.
    """

    @abstractmethod
    def forward(self, images: Tensor, draw: Draw) -> Tensor:
        """Change a batch, on the device it is on.

        Args:
            images: float32 from 0 to 1, shape (batch, channel, height, width).
            draw: Called with a name, it returns a random number for each image, uniform in [0, 1), float32 of shape
                (batch, 1, 1, 1). The same name gives the same numbers again.

        Returns:
            The changed images, of the same shape.
        """


def apply_steps(steps: Sequence[nn.Module], images: Tensor, index: Tensor, seed: int, epoch: int) -> Tensor:
    """Apply steps in turn.

    Args:
        steps: `AugmentStep`s, or modules that take the images alone, such as those of ``torchvision.transforms.v2``.
        images: float32 from 0 to 1, shape (batch, channel, height, width).
        index: Number of each sample, int64 of shape (batch,).
        seed: Seed of the draws.
        epoch: Number of the epoch, from 0.

    Returns:
        The changed images, of the same shape.

    Raises:
        UserError: If a step returns something else.
    """
    for number, step in enumerate(steps):
        step.to(images.device)  # where it has tensors of its own
        shape = images.shape
        if isinstance(step, AugmentStep):

            def draw(name: str, number: int = number) -> Tensor:
                return uniform(index, seed, epoch, f"{number} {name}")[:, None, None, None]

            images = step(images, draw)
        else:
            images = step(images)
        if not isinstance(images, Tensor) or images.shape != shape:
            found = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise UserError(
                f"data.augment.steps: {type(step).__name__} returns {found} for images of shape {tuple(shape)}; use a "
                "step that keeps the shape"
            )
    return images
