"""The smallest models and data that the callbacks work with: of images, and of series."""

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tiny(LightningModule):
    """Classify 8x8 images into `classes` classes, with a network that has batch normalisation."""

    def __init__(self, classes: int = 4, network: nn.Module | None = None) -> None:
        super().__init__()
        self.network = network or nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, classes)
        )

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/acc", (self.network(batch[0]).argmax(1) == batch[1]).float().mean())

    def test_step(self, batch, batch_idx):
        logits = self.network(batch[0])
        loss = nn.functional.cross_entropy(logits, batch[1])
        self.log("test/loss", loss)
        return {"loss": loss, "logits": logits}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Failing(Tiny):
    """Fails after its first training batch."""

    def on_train_batch_end(self, *_):
        raise ZeroDivisionError


class TinyData(LightningDataModule):
    """`samples` random images for each stage, in batches of `batch_size`; the last batch is smaller."""

    def __init__(self, samples: int = 10, batch_size: int = 4, classes: int = 4) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(samples, 3, 8, 8, generator=generator)
        labels = torch.randint(classes, (samples,), generator=generator)
        self.dataset = TensorDataset(images, labels)
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=self.batch_size)

    val_dataloader = test_dataloader = train_dataloader


class TinyForecaster(LightningModule):
    """Forecast every step of a series by the last value of the past; the interval is 1 to each side."""

    coverage = 0.9

    def test_step(self, batch, batch_idx):
        forecast = batch["past"][:, -1:].expand_as(batch["future"])
        return {"loss": forecast.mean(), "forecast": forecast, "lower": forecast - 1, "upper": forecast + 1}


class TinySeries(LightningDataModule):
    """Windows of 5 + 3 hours of a random series of `targets` columns, starting at its rows 10 to 10 + `windows`."""

    context_length, horizon, first = 5, 3, 10

    def __init__(self, windows: int = 20, targets: int = 2, batch_size: int = 6) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.series = torch.randn(
            self.first + windows + self.context_length + self.horizon - 1, targets, generator=generator
        )
        self.mean = 100.0 * torch.arange(1, targets + 1)
        self.scale = 2.0 + torch.arange(targets)
        self.naive_error = 0.5 + torch.arange(targets)
        self.target_names = [f"column {number}" for number in range(targets)]
        self.times = np.datetime64("2024-01-01", "s") + np.arange(len(self.series)) * np.timedelta64(1, "h")
        self.windows = windows
        self.batch_size = batch_size

    def test_dataloader(self):
        starts = torch.arange(self.windows).tensor_split(self.trainer.world_size)[self.trainer.global_rank]

        def gather(chosen):
            start = self.first + torch.stack(chosen)
            rows = self.series[start[:, None] + torch.arange(self.context_length + self.horizon)]
            return {"past": rows[:, : self.context_length], "future": rows[:, self.context_length :], "start": start}

        return DataLoader(starts, batch_size=self.batch_size, collate_fn=gather)


def make_trainer(folder, **options) -> Trainer:
    """Return a quiet CPU trainer that writes below `folder`, or into the logger given."""
    defaults = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "default_root_dir": folder,
    }
    return Trainer(**(defaults | options))
