"""Segmentation with any network that returns logits of each pixel."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import JaccardIndex

from litlab.tasks import ExperimentModule


class Segmenter(ExperimentModule):
    """Train any network with the sum of cross-entropy and the Dice loss (Milletari et al. 2016,
    arXiv:1606.04797).

    A batch is (images, classes), as of `Masks`. Logged once per epoch, for train, val and test:
    ``loss`` and ``iou``, the mean over the classes of intersection over union.

    Args:
        network: Returns logits, (batch, class, height, width), such as
            examples.segmentation.network.UNet.
        num_classes: Taken from the data when left out.
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.
    """

    data_facts = ("num_classes",)

    def __init__(self, network: nn.Module, *, num_classes: int | None = None, **training: Any):
        super().__init__(**training)
        self.network = network
        options: Any = {"task": "multiclass", "num_classes": num_classes, "validate_args": False}
        self.set_metrics({"iou": JaccardIndex(**options)}, flush_every=10)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss, shape (), of logits (batch, class, ...) and classes (batch, ...)."""
        shares = outputs.softmax(dim=1)
        truth = F.one_hot(target, outputs.shape[1]).movedim(-1, 1)
        overlap = 2 * (shares * truth).sum((0, 2, 3)) / (shares + truth).sum((0, 2, 3)).clamp(min=1)
        return F.cross_entropy(outputs, target) + 1 - overlap.mean()

    def convert(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the predicted class of each pixel, and the true one, as the metrics take them."""
        return outputs.argmax(dim=1), target

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Return the probabilities of the classes, (batch, class, height, width)."""
        return self(batch).softmax(dim=1)
