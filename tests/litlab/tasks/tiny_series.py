"""The smallest data that a forecaster works with, and a Trainer that is quiet."""

import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader


class TinySeries(LightningDataModule):
    """Windows over two noisy sines, `windows` for each stage, in batches of 5; ranks share them without padding."""

    context_length, horizon, num_targets = 12, 6, 2

    def __init__(self, windows: int = 23, covariates: int = 0, noise: float = 0.1) -> None:
        super().__init__()
        self.windows, self.num_covariates = windows, covariates
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

    def stage(self, number: int) -> list[dict[str, torch.Tensor]]:
        """Windows of train (0), val (1) or test (2), those of this rank."""
        every = self.trainer.world_size if self.trainer else 1
        first = self.trainer.global_rank if self.trainer else 0
        return list(map(self.window, range(number * self.windows + first, (number + 1) * self.windows, every)))

    def window(self, start: int) -> dict[str, torch.Tensor]:
        middle, end = start + self.context_length, start + self.context_length + self.horizon
        calendar = {"calendar": self.calendar[start:end]} if self.num_covariates else {}
        return {"past": self.series[start:middle], "future": self.series[middle:end], **calendar}

    def train_dataloader(self):
        return DataLoader(self.stage(0), batch_size=5)  # pyright: ignore[reportArgumentType]

    def val_dataloader(self):
        return DataLoader(self.stage(1), batch_size=5)  # pyright: ignore[reportArgumentType]

    def test_dataloader(self):
        return DataLoader(self.stage(2), batch_size=5)  # pyright: ignore[reportArgumentType]

    def predict_dataloader(self):
        windows = [{name: part for name, part in window.items() if name != "future"} for window in self.stage(0)[:3]]
        return DataLoader(windows, batch_size=2)  # pyright: ignore[reportArgumentType]


def everything(data: TinySeries, number: int) -> dict[str, torch.Tensor]:
    """All windows of a stage as one batch."""
    windows = data.stage(number)
    return {name: torch.stack([window[name] for window in windows]) for name in windows[0]}


def make_trainer(folder, **options) -> Trainer:
    """A CPU trainer that prints nothing and leaves nothing but what is asked for."""
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler")
    defaults = {"accelerator": "cpu", "max_epochs": 1, "log_every_n_steps": 1, **dict.fromkeys(quiet, False)}
    return Trainer(default_root_dir=folder, **(defaults | options))
