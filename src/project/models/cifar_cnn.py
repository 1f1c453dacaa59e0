"""The CIFAR experiment's model."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.nn import functional as F

from litlab.errors import UserError
from litlab.tasks import Classifier
from litlab.types import ClosedUnitInterval, HalfOpenUnitInterval, bounded
from litlab.util.steps import steps_of_run
from project.networks.whitened_cnn import WhitenedCNN

if TYPE_CHECKING:
    Width = int
else:
    Width = bounded(int, ">= 4")  # the first block has a quarter of it


class CifarCNN(Classifier):
    """A `Classifier` of small images with the network `WhitenedCNN`, designed to train fast.

    The network's first layer is fitted to the first training batch, and training begins with
    smaller images.

    Args:
        width: Channels of the second block; the first has a quarter, the third twice as many. 128
            suits a CPU and minutes, 256 a GPU.
        small_image_fraction: Share of training, at its beginning, with images at three quarters of
            their size: nearly twice as many images in the same time (progressive resizing, Howard
            2018, fast.ai).
        num_classes: Number of classes. Taken from the data when left out.
        image_shape: Channels, height and width of an image. Taken from the data when left out.
        label_smoothing: Share of the target that is spread evenly over all classes, from 0 to below
            1.
        **settings: members, mixup, cutmix, flip_tta, shift_tta, metrics, optimizer, schedule and
            param_groups, as of `Classifier`.

    Raises:
        UserError: If the images are too small, or their size is not known.
    """

    def __init__(
        self,
        *,
        width: Width = 128,
        small_image_fraction: ClosedUnitInterval = 0.5,
        num_classes: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
        label_smoothing: HalfOpenUnitInterval = 0.2,
        **settings: Any,
    ) -> None:
        if image_shape is None or num_classes is None:
            raise UserError(
                "model: image_shape and num_classes are not set, and the data does not provide "
                "them; set them or use ImageData"
            )
        if min(image_shape[1:]) < 16:
            raise UserError(
                f"data.image_size: {image_shape[1]} x {image_shape[2]} is not valid; CifarCNN "
                "needs 16 x 16 or more"
            )
        network = partial(WhitenedCNN, image_shape[0], num_classes, (width // 4, width, 2 * width))
        super().__init__(
            network,
            num_classes=num_classes,
            image_shape=image_shape,
            label_smoothing=label_smoothing,
            **settings,
        )
        self.small_image_fraction = small_image_fraction
        self._small_steps = 0

    def on_train_start(self) -> None:
        steps = steps_of_run(self.trainer) if self.small_image_fraction else 0
        if math.isinf(steps):
            rank_zero_info(
                "warning: model.small_image_fraction: the length of the run is not known, so that "
                "all images keep their size; set trainer.max_steps"
            )
            steps = 0
        self._small_steps = int(self.small_image_fraction * steps)

    def on_train_batch_start(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        if self.global_step == 0 and batch_idx == 0 and not self.networks[0].whitened:
            # Every rank has another batch; all take the first rank's, so that they start from the
            # same network.
            images = self.trainer.strategy.broadcast(batch[0].cpu())
            for network in self.networks:
                network.whiten(images)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits as `Classifier` does, of images that are smaller at the beginning of the
        training.
        """
        if self.training and self.global_step < self._small_steps and min(inputs.shape[2:]) >= 24:
            inputs = F.interpolate(inputs, scale_factor=0.75, mode="bilinear", antialias=True)
        return super().forward(inputs)
