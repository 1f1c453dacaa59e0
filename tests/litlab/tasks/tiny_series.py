"""The smallest data that a forecaster works with, and a Trainer that is quiet."""

import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader, Dataset


class TinySeries(LightningDataModule):
    """Windows over two noisy sines, `windows` for each stage, in batches of 5; ranks share them without padding."""

    context_length, horizon, num_targets = 12, 6, 2

    def __init__(self, windows: int = 23, covariates: int = 0, noise: float = 0.1) -> None:
        super().__init__()
        self.windows = windows
        self.num_covariates = covariates
        time = torch.arange(3 * windows + self.context_length + self.horizon, dtype=torch.float32)
        generator = torch.Generator().manual_seed(0)
        self.series = torch.stack([(time / 3).sin(), 2 + (time / 2).cos()], dim=1)
        self.series += noise * torch.randn(self.series.shape, generator=generator)
        self.calendar = torch.randn(len(time), covariates, generator=generator)
        self.naive_error = torch.tensor([0.5, 0.25])
        self.ridge_calls: list[int | None] = []

    def ridge(self, past: int | None = None) -> torch.Tensor:
        """Not the ridge, but as it: a linear map whose rows sum to one. It repeats the rows of 6 rows ago."""
        self.ridge_calls.append(past)
        rows = past or self.context_length
        return torch.eye(rows)[rows - 6 :]

    def stage(self, number: int) -> Dataset:
        """Windows of train (0), val (1) or test (2), those of this rank."""
        every = self.trainer.world_size if self.trainer else 1
        first = self.trainer.global_rank if self.trainer else 0
        return _Windows(self, range(number * self.windows + first, (number + 1) * self.windows, every))

    def train_dataloader(self):
        return DataLoader(self.stage(0), batch_size=5)

    def val_dataloader(self):
        return DataLoader(self.stage(1), batch_size=5)

    def test_dataloader(self):
        return DataLoader(self.stage(2), batch_size=5)

    def predict_dataloader(self):
        return DataLoader(_Windows(self, range(3), future=False), batch_size=2)


class _Windows(Dataset):
    def __init__(self, data: TinySeries, starts: range, future: bool = True) -> None:
        self.data, self.starts, self.future = data, starts, future

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        data, start = self.data, self.starts[index]
        middle, end = start + data.context_length, start + data.context_length + data.horizon
        batch = {"past": data.series[start:middle], "start": torch.tensor(start)}
        if self.future:
            batch["future"] = data.series[middle:end]
        if data.num_covariates:
            batch["calendar"] = data.calendar[start:end]
        return batch


def everything(data: TinySeries, number: int) -> dict[str, torch.Tensor]:
    """All windows of a stage as one batch."""
    return next(iter(DataLoader(data.stage(number), batch_size=data.windows)))


def make_trainer(folder, **options) -> Trainer:
    """A CPU trainer that prints nothing and leaves nothing but what is asked for."""
    defaults = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "default_root_dir": folder,
        "use_distributed_sampler": False,
    }
    return Trainer(**(defaults | options))
