"""Linear regression, written as Lightning's documentation teaches it."""

import torch
from lightning import LightningModule
from torch import Tensor, nn


class LinearRegression(LightningModule):
    """y = weight * x + bias, by gradient descent on the mean squared error.

    Args:
        lr: Learning rate.
    """

    def __init__(self, lr: float = 0.2) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.line = nn.Linear(1, 1)

    def training_step(self, batch: list[Tensor], batch_idx: int, stage: str = "train") -> Tensor:
        """Log and return the loss of a batch: x and y, each of shape (batch, 1)."""
        x, y = batch
        loss = nn.functional.mse_loss(self.line(x), y)
        self.log(f"{stage}/loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.log_dict(
            {"weight": self.line.weight.item(), "bias": self.line.bias.item()}, prog_bar=True
        )

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.training_step(batch, batch_idx, "test")

    def on_test_end(self) -> None:
        """Print weight and bias beside those of least squares on the same points."""
        x, y = self.trainer.datamodule.train[:]  # pyright: ignore[reportAttributeAccessIssue]
        best = torch.linalg.lstsq(torch.cat([x, torch.ones_like(x)], dim=1), y).solution
        for name, weight, bias in (("learned", *self.line.parameters()), ("least squares", *best)):
            print(f"{name:13}  weight {weight.item():.3f}  bias {bias.item():.3f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.hparams["lr"])
