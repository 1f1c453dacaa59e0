"""Images per second and memory of the ways to read images: from memory, from files, from shards.

python benchmarks/streaming.py DIR [--batches 60] [--repeats 3]

DIR is a folder of images, train/<class>/. A tenth of its training images is one size, all of them ten times that. Each
side reads training batches of 250 in a process of its own, without augmentation; the first ten are not counted.
"memory": decoded once, as `ImageData` does by default. "files": `data.cache: none`. "shards": `data.dataset: shards`.
"ImageFolder": torchvision's data set in a plain DataLoader, image by image. Sides are measured in turns. Memory is the
most that loader and workers hold, pages that they share counted once (PSS, on Linux).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import torch
from common import save, summary

SIDES = ("memory", "files", "shards", "ImageFolder")
BATCH = 250


def loader(side: str, folder: Path, workers: int) -> Any:
    """Return the training batches of a side."""
    from litlab.data import ImageData

    if side == "ImageFolder":
        from torchvision.datasets import ImageFolder
        from torchvision.transforms.v2 import PILToTensor

        data = ImageFolder(folder / "train", transform=PILToTensor())
        return torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=workers)
    cache = str(folder.parent / f"cache_{folder.name}")
    if side == "shards":
        module: Any = ImageData("shards", str(folder) + "_shards", batch_size=BATCH, num_workers=workers)
    else:
        kind = "decoded" if side == "memory" else "none"
        module = ImageData(
            "folder", str(folder), batch_size=BATCH, num_workers=workers, cache=kind, cache_dir=cache, val_fraction=0
        )
    module.prepare_data()
    module.setup()
    return module.train_dataloader()


def measure(side: str, folder: Path, workers: int, batches: int) -> dict[str, float]:
    """Measure images per second, and the most memory in MiB, in this process."""
    torch.set_num_threads(1)
    found = loader(side, folder, workers)
    started, count, most = 0.0, 0, 0
    me = psutil.Process()
    for number, batch in enumerate(islice(found, batches + 10)):
        images = batch["image"] if isinstance(batch, dict) else batch[0]
        if number == 10:
            started, count = time.perf_counter(), 0
        count += len(images)
        if number % 20 == 15:
            pause = time.perf_counter()
            family = [me, *me.children(recursive=True)]
            most = max(most, sum(process.memory_full_info().pss for process in family))
            started += time.perf_counter() - pause
    return {"images/s": count / (time.perf_counter() - started), "MiB": most / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        print(json.dumps(measure(chosen.side, chosen.folder, chosen.workers, chosen.batches)))
        return
    from litlab.data import ImageData
    from litlab.data.store import new_folder

    with tempfile.TemporaryDirectory() as place:
        sizes = {}
        for name, every in (("tenth", 10), ("all", 1)):
            folder = Path(place, name)
            files = sorted((chosen.folder / "train").glob("*/*"))[::every]
            for file in files:
                link = folder / "train" / file.parent.name / file.name
                link.parent.mkdir(parents=True, exist_ok=True)
                os.symlink(file.resolve(), link)
            data = ImageData("folder", str(folder), cache="none", cache_dir=f"{place}/none", val_fraction=0)
            data.setup()
            with new_folder(Path(f"{folder}_shards")) as shards:
                data.write_shards(shards, 1_000_000)
            sizes[name] = (folder, len(files))
        runs: dict[tuple[str, str, int], list[dict[str, float]]] = {}
        for _ in range(chosen.repeats):
            for name, (folder, _count) in sizes.items():
                for side in SIDES:
                    for workers in (0, 2):
                        command = [sys.executable, __file__, str(folder), "--side", side, "--workers", str(workers)]
                        command += ["--batches", str(min(chosen.batches, _count // BATCH - 10))]
                        done = subprocess.run(command, capture_output=True, text=True, check=True)
                        runs.setdefault((name, side, workers), []).append(json.loads(done.stdout.splitlines()[-1]))
    results = [
        {
            "data": name, "images": sizes[name][1], "side": side, "workers": workers,
            "images/s": summary([one["images/s"] for one in found]), "MiB": summary([one["MiB"] for one in found]),
        }
        for (name, side, workers), found in runs.items()
    ]  # fmt: skip
    for row in results:
        print(*row.values(), sep="\t")
    save("streaming", {"batch": BATCH, "rows": results})


if __name__ == "__main__":
    main()
