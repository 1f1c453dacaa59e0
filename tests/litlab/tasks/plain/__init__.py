"""An experiment as Lightning's own documentation teaches it: nothing of it knows this project."""

from pathlib import Path

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.cli import OptimizerCallable
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC


class Points(LightningModule):
    """Tells points whose coordinates add up to more than 0 from the others.

    Args:
        optimizer: Any optimizer.
    """

    def __init__(self, optimizer: OptimizerCallable = torch.optim.Adam) -> None:
        super().__init__()
        self.save_hyperparameters(ignore="optimizer")
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
        self.make_optimizer = optimizer
        self.aurocs = nn.ModuleDict(
            {f"of_{stage}": BinaryAUROC() for stage in ("train", "val", "test")}
        )

    def forward(self, points):
        return self.layers(points)

    def training_step(self, batch, batch_idx):
        return {"loss": self._shared_step(batch, "train")}

    def configure_optimizers(self):
        return self.make_optimizer(self.parameters())

    def _shared_step(self, batch, stage):
        points, labels = batch
        logits, auroc = self(points), self.aurocs[f"of_{stage}"]
        loss = F.binary_cross_entropy_with_logits(logits, labels.float())
        auroc(logits, labels)
        self.log_dict(
            {f"{stage}_loss": loss, f"{stage}_auroc": auroc}, on_step=False, on_epoch=True
        )
        return loss

    def validation_step(self, batch, batch_idx):
        self._shared_step(batch, "val")

    def test_step(self, batch, batch_idx):
        self._shared_step(batch, "test")

    def predict_step(self, batch, batch_idx):
        return self(batch[0]).sigmoid()


class PointsData(LightningDataModule):
    """Random points in four dimensions, and how many classes there are.

    Args:
        batch_size: Points per batch.
    """

    num_classes = 2

    def __init__(self, batch_size: int = 16) -> None:
        super().__init__()
        self.save_hyperparameters()

    def train_dataloader(self):
        points = torch.randn(160, 4, generator=torch.Generator().manual_seed(0))
        return DataLoader(
            TensorDataset(points, (points.sum(dim=1) > 0).long()),
            batch_size=self.hparams.batch_size,
        )

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


class Writer(BasePredictionWriter):
    """Writes probabilities.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__("epoch")
        self.path = path

    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
        Path(self.path).write_text("\n".join(map(str, torch.cat(predictions).tolist())))
