"""Training batches of text and of series: TextData and SeriesData against DataLoaders that take
item by item.

    python benchmarks/batches.py [--texts FILE.csv] [--text-columns text] [--series FILE.csv]
    [--repeats 5]

Text: padded tokens per real token and real tokens per second, beside a DataLoader that shuffles and
    pads lists of ids.
Series: windows per second, beside a DataLoader whose dataset slices one window per item. 0 and 2
workers; the better one counts. Repeats alternate. Left out, the data is generated.
"""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from common import save, summarise
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from litlab.data import SeriesData, TextData


class Texts(Dataset):
    """One text at a time."""

    def __init__(self, ids: list[Tensor], labels: list[int]) -> None:
        self.ids, self.labels = ids, labels

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.ids[index], self.labels[index]


def padded(texts: list[tuple[Tensor, int]]) -> tuple[dict[str, Tensor], Tensor]:
    ids, labels = zip(*texts, strict=True)
    return {"ids": pad_sequence(list(ids), batch_first=True)}, torch.tensor(labels)


class Slices(Dataset):
    """One window at a time."""

    def __init__(self, values: Tensor, windows: int, context_length: int, horizon: int) -> None:
        self.values, self.windows, self.context_length, self.horizon = (
            values,
            windows,
            context_length,
            horizon,
        )

    def __len__(self) -> int:
        return self.windows

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        middle = index + self.context_length
        return self.values[index:middle], self.values[middle : middle + self.horizon]


def text_pass(loader: Iterable[Any]) -> tuple[float, float]:
    """Return the padded tokens per real token, and real tokens per second, over one pass without
    its first batch.
    """
    batches = iter(loader)
    next(batches)  # the start of the workers
    real, cells, start = 0, 0, time.perf_counter()
    for inputs, _ in batches:
        cells += inputs["ids"].numel()
        real += int(inputs["ids"].count_nonzero())
    return cells / real, real / (time.perf_counter() - start)


def window_pass(loader: Iterable[Any]) -> float:
    """Windows per second over one pass without its first batch."""
    batches = iter(loader)
    next(batches)
    windows, start = 0, time.perf_counter()
    for batch in batches:
        windows += len(batch["past"] if isinstance(batch, dict) else batch[0])
    return windows / (time.perf_counter() - start)


def text_benchmark(data: TextData, repeats: int) -> dict[str, Any]:
    data.prepare_data()
    data.setup("fit")
    stored = data.train_dataloader().dataset
    inputs = [stored[torch.tensor([row])] for row in range(len(stored))]
    texts = Texts([batch["ids"][0] for batch, _ in inputs], [int(label) for _, label in inputs])
    ratios: dict[str, list[float]] = {}
    speeds: dict[str, list[float]] = {}
    for epoch in range(repeats):
        loader = data.train_dataloader()
        loader.sampler.set_epoch(epoch)
        loaders = {"TextData": loader}
        for workers in (0, 2):
            loaders[f"random batches, {workers} workers"] = DataLoader(
                texts,
                data.batch_size,
                shuffle=True,
                drop_last=True,
                collate_fn=padded,
                num_workers=workers,
            )
        for name, loader in loaders.items():
            ratio, speed = text_pass(loader)
            ratios.setdefault(name, []).append(ratio)
            speeds.setdefault(name, []).append(speed)
    return compared("TextData", speeds) | {
        "texts": data.sizes,
        "padded_tokens_per_real_token": {
            name: summarise(values) for name, values in ratios.items()
        },
    }


def series_benchmark(data: SeriesData, repeats: int) -> dict[str, Any]:
    data.prepare_data()
    data.setup("fit")
    values = torch.randn(
        data.sizes["train"] + data.context_length + data.horizon - 1, data.num_targets
    )
    slices = Slices(values, data.sizes["train"], data.context_length, data.horizon)
    speeds: dict[str, list[float]] = {}
    for _ in range(repeats):
        loaders = {"SeriesData": data.train_dataloader()}
        for workers in (0, 2):
            loaders[f"slices, {workers} workers"] = DataLoader(
                slices, data.batch_size, shuffle=True, drop_last=True, num_workers=workers
            )
        for name, loader in loaders.items():
            speeds.setdefault(name, []).append(window_pass(loader))
    return compared("SeriesData", speeds) | {"windows": data.sizes}


def compared(ours: str, speeds: dict[str, list[float]]) -> dict[str, Any]:
    table = {name: summarise(values) for name, values in speeds.items()}
    best = max(values["median"] for name, values in table.items() if name != ours)
    return {"per_second": table, "ratio": table[ours]["median"] / best}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", help="CSV file of label and text")
    parser.add_argument("--text-columns", nargs="+", default=["text"])
    parser.add_argument("--series", help="CSV file of date and numbers")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    source = (
        {"dataset": "csv", "path": options.texts} if options.texts else {"dataset": "generated"}
    )
    text = TextData(**source, text_columns=options.text_columns, batch_size=64, max_tokens=400)
    source = (
        {"dataset": "csv", "path": options.series} if options.series else {"dataset": "generated"}
    )
    series = SeriesData(**source, batch_size=64)
    results = {
        "files": [Path(name).name for name in (options.texts, options.series) if name],
        "text": text_benchmark(text, options.repeats),
        "series": series_benchmark(series, options.repeats),
    }
    save("batches", results)


if __name__ == "__main__":
    main()
