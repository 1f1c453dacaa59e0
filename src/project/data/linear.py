"""Points near the line y = 3x + 2."""

import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader, TensorDataset, random_split


class LinearData(LightningDataModule):
    """1,000 points (x, y), 800 for training and 200 for the test; y has normal noise.

    Args:
        noise: Standard deviation of the noise.
        batch_size: Points per batch.
    """

    def __init__(self, noise: float = 0.1, batch_size: int = 32) -> None:
        super().__init__()
        self.batch_size = batch_size
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(1000, 1, generator=generator)
        y = 3 * x + 2 + noise * torch.randn(1000, 1, generator=generator)
        self.train, self.test = random_split(TensorDataset(x, y), (800, 200), generator)

    def train_dataloader(self) -> DataLoader:
        """Batches of x and y, each of shape (batch, 1), in random order."""
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test, self.batch_size)
