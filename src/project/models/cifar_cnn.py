"""The CIFAR experiment's model."""

from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor

from project.errors import UserError
from project.models.classifier import Classifier
from project.networks.whitened_cnn import WhitenedCNN
from project.optim import Schedule


class CifarCNN(Classifier):
    """A `Classifier` of small images with the network `WhitenedCNN`, which is fitted to the first training batch.

    Args:
        width: Channels of the second and third block; the first block has a quarter of it. 128 is quick on a CPU, 256
            more accurate.
        num_classes: Number of classes. Taken from the data when left out.
        image_shape: Channels, height and width of an image. Taken from the data when left out.
        label_smoothing: Share of the target that is spread evenly over all classes, from 0 to below 1.
        optimizer: Any torch.optim class, without its parameters. Left out, AdamW with its defaults.
        schedule: Learning-rate schedule. Left out, the learning rate stays as it is.

    Raises:
        UserError: If a value is out of range, or the images are too small.
    """

    def __init__(
        self,
        width: int = 128,
        num_classes: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
        label_smoothing: float = 0.2,
        optimizer: OptimizerCallable | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        if width < 4:
            raise UserError(f"model.width is {width}: it must be 4 or more.")
        if image_shape is None or num_classes is None:
            raise UserError("model.image_shape and model.num_classes are not set, and the data does not tell them.")
        network = WhitenedCNN(image_shape[0], num_classes, (width // 4, width, width))
        super().__init__(network, num_classes, image_shape, label_smoothing, optimizer, schedule)

    def on_train_batch_start(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Whitens the network's first layer by the first batch of a training that starts from nothing."""
        if self.global_step == 0 and batch_idx == 0 and not self.network.whitened:
            # Every rank has another batch; all take the first rank's, so that they start from the same network.
            self.network.whiten(self.trainer.strategy.broadcast(batch[0]))
