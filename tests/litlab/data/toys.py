"""The smallest data set there is: numbers, which are their own labels' multiples."""

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from litlab.data import Classes, ExperimentData, TargetMetadata
from litlab.data.split import split_samples


class Batches(Dataset):
    def __init__(self, numbers: torch.Tensor) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
        return self.numbers[index % len(self)]


class Numbers(ExperimentData):
    """Numbers from 0 to 99, each fifth of class "rare"; a tenth is for validation and the test
    each.
    """

    metadata_type = TargetMetadata
    own_files = ("folder", "csv")

    def __init__(self, dataset=None, path=None, fallback=None, **settings) -> None:
        super().__init__(**settings)
        if dataset or path is not None or self.public:
            self.choose_source(dataset, path, fallback)

    def open(self, stage):
        self.numbers = torch.arange(100)
        splits = split_samples(np.full(100, "train"), 0.1, 0.1)
        self.rows = {split: torch.from_numpy(splits == split) for split in ("train", "val", "test")}
        self.sizes = {split: int(rows.sum()) for split, rows in self.rows.items()}
        return TargetMetadata(target=Classes(["class"], ["rare", "frequent"]))

    def samples(self, split):
        return Batches(self.numbers[self.rows[split]])

    def labels(self, split):
        return (self.numbers[self.rows[split]] % 5 > 0).long()


class PublicNumbers:
    name, file_names = "numbers", ["numbers.csv"]

    def download(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
