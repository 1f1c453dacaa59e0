"""A network for images and masks, with its task; and data for it that can't be served."""

from typing import Any

from lightning.pytorch import LightningDataModule
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torchmetrics.classification import BinaryJaccardIndex

from auks.shapes import Shapes
from litlab.data import ExperimentData
from litlab.tasks import ExperimentModule


class ShapeFinder(ExperimentModule):
    """Two convolutions that say of each pixel whether it is of a shape.

    Args:
        width: Channels between them.
        **training: As of `ExperimentModule`.
    """

    def __init__(self, width: int = 8, **training: Any) -> None:
        super().__init__(**training)
        self.network = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2), nn.ReLU(), nn.Conv2d(width, 1, 5, padding=2)
        )
        self.set_metrics({"iou": BinaryJaccardIndex()})

    def training_outputs(self, batch: Any) -> Any:
        images, masks = batch
        logits = self(images)
        loss = F.binary_cross_entropy_with_logits(logits, masks.float())
        return loss, logits.detach().sigmoid(), masks

    def evaluate(self, metrics: Any, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        loss = F.binary_cross_entropy_with_logits(outputs, target.float())
        metrics.add(loss, outputs.sigmoid(), target)
        return {"loss": loss}

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self(batch).sigmoid()


class Unserved(Shapes):
    """Nothing stands between a model of these and those who ask it."""

    serving = ExperimentData.serving  # pyright: ignore[reportAssignmentType]

    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        return batch["image"].float() / 255, batch["target"]


class Plain(LightningDataModule):
    """Batches, and nothing else."""

    def __init__(self, path: str, batch_size: int = 1) -> None:
        super().__init__()
        self.shapes = Unserved(path, batch_size=batch_size)

    def train_dataloader(self) -> Any:
        batches: Any = list(self.shapes.batches("train"))
        return DataLoader(batches, batch_size=None)

    val_dataloader = test_dataloader = train_dataloader
