"""Handwritten digits, for models that make images."""

import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader


class DigitsData(LightningDataModule):
    """The 1,797 grey digits of 8 x 8 that scikit-learn includes (Alpaydin & Kaynak 1998), 1,000 of
    them for training.

    A batch is float32 of shape (batch, 1, 8, 8), from 0 to 1.

    Args:
        batch_size: Images per batch.
    """

    def __init__(self, batch_size: int = 50) -> None:
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage: str) -> None:
        from sklearn.datasets import load_digits

        pixels, _ = load_digits(return_X_y=True)
        images = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)
        self.train, self.val, self.test = images.split([1000, 397, 400])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, self.batch_size, shuffle=True)  # pyright: ignore[reportArgumentType]

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, self.batch_size)  # pyright: ignore[reportArgumentType]

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test, self.batch_size)  # pyright: ignore[reportArgumentType]
