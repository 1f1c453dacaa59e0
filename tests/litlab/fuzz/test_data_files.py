"""Data files with something wrong: every DataModule reads them, or refuses them in one line."""

import os
import random
import shutil
import time
import traceback
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import torch
from PIL import Image

from litlab.data import ImageData, SeriesData, TabularData, TextData
from litlab.data.images.decode import ImageFormat
from litlab.data.images.predictions import find_images, readable
from litlab.data.series.predictions import read_last_window
from litlab.data.tables.predictions import read_input as read_rows
from litlab.data.text.predictions import read_input
from litlab.errors import UserError
from tests.litlab.fuzz.file_mutations import Rows, spoilt
from tests.litlab.fuzz.harness import Hang, _limits

_SECONDS = 60.0  # after which it is called a hang; a file takes a hundredth of one

TEXTS: Rows = [["label", "text", "more"]] + [
    [f"c{n % 2}", f"word{n} {'good' if n % 2 else 'bad'} {n % 5}", "x, y"] for n in range(14)
]
SERIES: Rows = [["date", "load", "heat"]] + [
    [str(datetime(2024, 1, 1) + timedelta(hours=n)), f"{n % 7 + 0.5}", f"{n * n % 11}"] for n in range(40)
]
TABLE: Rows = [["size", "age", "city", "kind", "price"]] + [
    [f"{n * n % 17}.5", str(n * 7 % 30), "ab"[n // 3 % 2], "xy"[n % 2], f"{n * 3 % 13 + 0.5}"] for n in range(40)
]
IMAGES: Rows = [["file", "label", "part"]] + [
    [f"{n}.png", "ab"[n % 2], ("train", "val", "test")[n // 4]] for n in range(12)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("files")
    for number in range(12):
        Image.new("L", (4, 4), 20 * number).save(root / f"{number}.png")
    return root


def texts(path: Path, rng: random.Random) -> None:
    policy = rng.choice(["error", "drop"])
    test_path = None
    if rng.random() < 0.3:
        test_path = path.with_name("test.csv")
        test_path.write_bytes(spoilt(TEXTS, rng))
    columns = rng.choice([None, None, None, ["label", "text", "more"]])
    text_columns = rng.choice([["text"], ["text", "more"]])
    if rng.random() < 0.3:
        rows = read_input(str(path), columns, text_columns, "label", policy)
        assert len(rows.numbers) == len(rows.texts) > 0
    data = TextData(
        "csv", str(path), test_path=None if test_path is None else str(test_path), columns=columns,
        text_columns=text_columns, vocab_size=50, bad_rows=policy, cache_dir=str(path.parent / "cache"),
    )  # fmt: skip
    data.prepare_data()
    data.setup()
    assert data.num_classes >= 2
    assert data.sizes["train"] >= data.num_classes


def series(path: Path, rng: random.Random) -> None:
    policy, gaps = rng.choice(["error", "drop"]), rng.choice(["error", "interpolate"])
    targets = rng.choice([None, None, ["load"], ["heat", "load"]])
    data = SeriesData(
        "csv", str(path), targets=targets, context_length=3, horizon=2, gaps=gaps, bad_rows=policy, season=2
    )
    data.prepare_data()
    data.setup()
    batch = next(iter(data.train_dataloader()))
    assert batch["past"].isfinite().all()
    assert batch["past"].abs().max() < 1e10
    if rng.random() < 0.5:
        path.write_bytes(spoilt(SERIES, rng))
    windows, _ = read_last_window(path, data.known_metadata, gaps, policy)
    assert windows[torch.tensor([0])]["past"].isfinite().all()


def tables(path: Path, rng: random.Random) -> None:
    policy, target = rng.choice(["error", "drop"]), rng.choice(["price", "kind", ["price", "size"]])
    split = rng.choice([{}, {}, {"group_column": "city"}, {"time_column": "age"}])
    data = TabularData("csv", str(path), target=target, bad_rows=policy, **split)
    data.prepare_data()
    data.setup()
    for split in data.sizes:
        samples = data.samples(split)
        inputs, target = samples[torch.arange(len(samples))]
        assert inputs["numbers"].isfinite().all()
        assert target.isfinite().all()
        sizes = torch.tensor(data.category_sizes, dtype=torch.int64)
        assert (inputs["categories"] < sizes).all()
    assert all(isinstance(value, float) for row in data.baselines().values() for value in row.values())
    if rng.random() < 0.5:
        path.write_bytes(spoilt(TABLE, rng))
    rows, numbers = read_rows(path, data.known_metadata, policy)
    assert len(rows) == len(numbers) > 0


def images(path: Path, rng: random.Random) -> None:
    policy, split = rng.choice(["error", "drop"]), rng.choice([None, "part"])
    options = {"split_column": split, "bad_rows": policy, "image_size": rng.choice([None, (3, 3)])}
    damaged = path.with_name(f"{rng.randrange(12)}.png")
    content = damaged.read_bytes()
    damaged.write_bytes(content[: rng.randint(0, len(content))] if rng.random() < 0.3 else content)
    try:
        data = ImageData("csv", str(path), cache_dir=str(path.parent / "cache"), **options)
        data.prepare_data()
        data.setup()
        assert data.num_classes >= 2
        form = ImageFormat(3, 3, "L", "crop", convert=True)
        assert readable(find_images(str(path.parent)), form, str(path.parent), policy)
    finally:
        damaged.write_bytes(content)


KINDS = {
    "texts": (texts, TEXTS), "series": (series, SERIES), "tables": (tables, TABLE), "images": (images, IMAGES),
}  # fmt: skip


def attempt(kind: str, seed: int, folder: Path) -> tuple[str, str]:
    """Reads one spoilt file; how that ended, and what was said."""
    rng = random.Random(seed)
    read, rows = KINDS[kind]
    path = folder / "data.csv"
    path.write_bytes(spoilt(rows, rng))
    try:
        with _limits(_SECONDS):
            read(path, rng)
    except UserError as error:
        line = str(error)
        return ("line" if len(line.splitlines()) == 1 and len(line) <= 1000 else "no line"), line
    except Hang:
        return "hang", traceback.format_exc()
    except Exception:
        return "traceback", traceback.format_exc()
    finally:
        shutil.rmtree(folder / "cache", ignore_errors=True)  # thousands of them are slow to look through
    return "ok", ""


@pytest.mark.parametrize(("kind", "count"), [("texts", 80), ("series", 250), ("tables", 120), ("images", 60)])
def test_spoilt_files(folder, kind, count):
    endings = {seed: attempt(kind, seed, folder) for seed in range(count)}
    bad = [f"{kind} {seed}: {how}: {said}" for seed, (how, said) in endings.items() if how not in ("ok", "line")]
    assert not bad
    assert {how for how, _ in endings.values()} == {"ok", "line"}  # it would test nothing if all were refused


@pytest.mark.fuzz
def test_spoilt_files_for_long(folder):
    seed = int(os.environ.get("FUZZ_SEED", time.time()))
    end = time.monotonic() + 60 * float(os.environ.get("FUZZ_MINUTES", "60"))
    counts: dict[str, int] = {}
    bad: list[str] = []
    while time.monotonic() < end:
        for kind in KINDS:
            how, said = attempt(kind, seed, folder)
            counts[how] = counts.get(how, 0) + 1
            if how not in ("ok", "line"):
                bad.append(f"{kind} {seed}: {how}: {said}")
                print(bad[-1])
        seed += 1
    print(f"data files, up to FUZZ_SEED {seed}: {counts}")
    assert not bad
