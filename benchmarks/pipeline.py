"""Augmented training images per second: ImageData against torchvision's transforms image by image.

    python benchmarks/pipeline.py [--images DIR] [--repeats 5]

Both crop (2 pixels), flip and normalise the same 32 x 32 images into float32 batches of 500.
torchvision runs in a DataLoader with 0 and with 2 workers; the better one counts. Repeats
alternate.
"""

import argparse
import time

import torch
from common import save, summarise
from lightning.pytorch import Trainer
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from litlab.data import Augment, ImageData

BATCH = 500


class OneByOne(Dataset):
    """Images (number, height, width, channel) as PIL images through torchvision's transforms."""

    def __init__(self, images, labels, mean, std) -> None:
        self.images, self.labels = images, labels
        self.transform = transforms.Compose(
            [
                # A black border: a reflected one is twice as slow in PIL
                transforms.RandomCrop(32, padding=2),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean, std),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def ours(data: ImageData, batches: int) -> float:
    """Images per second over so many batches."""
    loader, seen, start = data.train_dataloader(), 0, time.perf_counter()
    while seen < batches * BATCH:
        for batch in loader:
            images, _ = data.on_after_batch_transfer(batch, 0)
            seen += len(images)
    return seen / (time.perf_counter() - start)


def theirs(dataset: Dataset, workers: int) -> float:
    """Images per second over one pass, the workers' start left out."""
    loader = iter(DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, drop_last=True))
    next(loader)
    seen, start = 0, time.perf_counter()
    for images, _ in loader:
        seen += len(images)
    return seen / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--images", help="folder with train/<class>/; generated images where left out"
    )
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    source = (
        {"dataset": "folder", "path": options.images}
        if options.images
        else {"dataset": "generated"}
    )
    data = ImageData(
        **source, batch_size=BATCH, augment=Augment(crop=2, flip="random"), val_fraction=0.0
    )
    data.trainer = Trainer(accelerator="cpu", logger=False, barebones=True)
    data.prepare_data()
    data.setup("fit")
    data.trainer.training = True
    raw = data.train_dataloader().dataset[torch.arange(10_000)]
    pixels = raw["image"][:, :, 2:-2, 2:-2].permute(0, 2, 3, 1).contiguous().numpy()
    dataset = OneByOne(pixels, raw["target"].tolist(), data.metadata.mean, data.metadata.std)

    speeds: dict[str, list[float]] = {
        "ImageData": [],
        "torchvision, 0 workers": [],
        "torchvision, 2 workers": [],
    }
    ours(data, 20)  # warm up
    for _ in range(options.repeats):
        speeds["ImageData"].append(ours(data, 400))
        speeds["torchvision, 0 workers"].append(theirs(dataset, 0))
        speeds["torchvision, 2 workers"].append(theirs(dataset, 2))
    table = {name: summarise(values) for name, values in speeds.items()}
    best = max(table["torchvision, 0 workers"]["median"], table["torchvision, 2 workers"]["median"])
    save("pipeline", {"images_per_second": table, "ratio": table["ImageData"]["median"] / best})


if __name__ == "__main__":
    main()
