"""An experiment as Lightning's own documentation teaches it: nothing of it knows this project."""

from pathlib import Path

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.demos.boring_classes import BoringModel
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC


class Points(BoringModel):
    """Tells points whose coordinates add up to more than 0 from the others.

    Args:
        optimizer: Any optimizer.
    """

    def __init__(self, optimizer: OptimizerCallable = torch.optim.Adam) -> None:
        super().__init__()
        self.save_hyperparameters(ignore="optimizer")
        self.layer = nn.Linear(4, 2)
        self.auroc = BinaryAUROC()  # of validation and test
        self.make_optimizer = optimizer

    def step(self, batch):
        """What Lightning's model does in training, validation and test."""
        points, labels = batch
        logits, stage = self(points), self.trainer.state.stage.dataloader_prefix
        loss = F.cross_entropy(logits, labels)
        metrics = {f"{stage}_loss": loss}
        if not self.training:
            self.auroc(logits[:, 1] - logits[:, 0], labels)
            metrics[f"{stage}_auroc"] = self.auroc
        self.log_dict(metrics, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return self.make_optimizer(self.parameters())

    def predict_step(self, batch, batch_idx):
        return self(batch[0]).softmax(1)[:, 1]


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
