"""Small image folders, and a trainer that trains nothing."""

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from PIL import Image

from project.data import ImageData


def write_image(path: Path, size: tuple[int, int] = (8, 6), mode: str = "RGB", value: int | None = None, seed: int = 0):
    """Write a random image, or one of a single value; size is (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = size if mode == "L" else (*size, len(mode))
    pixels = np.random.default_rng(seed).integers(0, 256, shape) if value is None else np.full(shape, value)
    Image.fromarray(pixels.astype(np.uint8), mode).save(path)


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """train/ with 20 cats and 10 dogs, test/ with 4 and 2, all 8 x 6 pixels."""
    root = tmp_path / "pets"
    for split, cats, dogs in (("train", 20, 10), ("test", 4, 2)):
        for name, count in (("cat", cats), ("dog", dogs)):
            for i in range(count):
                write_image(root / split / name / f"{i:02}.png", seed=crc32(f"{split} {name} {i}".encode()))
    return root


@pytest.fixture
def make_data(tmp_path: Path) -> Callable[..., ImageData]:
    def make(**options) -> ImageData:
        return ImageData(**{"cache_dir": str(tmp_path / "cache"), "batch_size": 4, **options})

    return make


class Recorder(LightningModule):
    """Trains one weight and keeps all that it is given, in the order of (stage, epoch)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: dict[tuple[str, int], list] = {}

    def _keep(self, stage: str, batch):
        self.seen.setdefault((stage, self.current_epoch), []).append(batch)

    def training_step(self, batch, index):
        self._keep("train", batch)
        return self.weight * batch[0].mean()

    def validation_step(self, batch, index):
        self._keep("sanity" if self.trainer.sanity_checking else "val", batch)

    def test_step(self, batch, index):
        self._keep("test", batch)

    def predict_step(self, batch, index):
        self._keep("predict", batch)
        return torch.full((len(batch), 2), 0.5)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def images(self, stage: str, epoch: int = 0) -> torch.Tensor:
        batches = self.seen[stage, epoch]
        return torch.cat([batch[0] if isinstance(batch, tuple | list) else batch for batch in batches])

    def labels(self, stage: str, epoch: int = 0) -> torch.Tensor:
        return torch.cat([batch[1] for batch in self.seen[stage, epoch]])


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., Trainer]:
    def make(**options) -> Trainer:
        return Trainer(
            **{
                "accelerator": "cpu",
                "logger": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "enable_checkpointing": False,
                "use_distributed_sampler": False,
                "default_root_dir": tmp_path,
                "max_epochs": 1,
                **options,
            }
        )

    return make
