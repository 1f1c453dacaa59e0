"""Segmentation: from images and masks to a run, predictions and an export."""

import base64
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from examples.segmentation.data import Masks, draw_shapes
from litlab.artifact.trusted import load_serving
from litlab.commands.export import export_run
from litlab.data import Augment
from litlab.runs.folder import read_json
from litlab.testing import ModuleContract
from tests.conftest import ROOT
from tests.litlab.runs.conftest import error

CONFIG = Path(__file__).with_name("config.yaml")
FIT = f"fit --config {CONFIG} --data.dataset=folder --data.path=shapes"


@pytest.fixture
def shapes(run, tmp_path) -> Path:
    """A folder of drawn shapes and their masks."""
    folder = tmp_path / "shapes"
    folder.mkdir()
    draw_shapes(folder, 80)
    return folder


class TestSegmenter(ModuleContract):
    config = CONFIG
    settings = (
        "--data.dataset=folder", "--data.path={shapes}", "--data.batch_size=8",
        "--model.network.width=8", "--model.optimizer.lr=0.02", "--trainer.callbacks=[]",
    )  # fmt: skip
    loss_at_start = 1.87  # ln(3) and the Dice loss of equal shares
    tolerance = 0.35  # with a head of small weights, whose loss is that, it gets stuck
    overfit_share = 0.5


def test_images_and_masks_are_mirrored_together(shapes):
    data = Masks("folder", str(shapes), target="mask", augment=Augment(2, "random"), batch_size=64)
    (images, masks), (others, _) = next(data.batches("train")), next(data.batches("train", 1))
    assert not images.equal(others)
    assert images[:, 0][masks > 0].mean() - images[:, 0][masks == 0].mean() > 1


def test_all_commands_take_it(run, shapes, monkeypatch):
    monkeypatch.setattr(export_run, "SECONDS", 0.001)
    monkeypatch.setenv("XDG_CACHE_HOME", str(shapes.parent / "cache"))
    run(f"{FIT} --trainer.max_epochs=2 --model.network.width=8 --trainer.precision=32-true").check()
    folder = Path("lightning_logs/segmentation/version_0")
    assert (folder / "masks.png").is_file()
    iou = read_json(folder / "metrics.json")["test"]["test/iou"]

    predict = "predict --run=last --input=shapes/images"
    run(f"{predict} --output=out").check()
    masks = [np.asarray(Image.open(file)) for file in sorted(Path("out").glob("*.png"))]
    assert len(masks) == 80
    assert {*np.unique(masks)} <= {0, 128, 255}
    (shapes / "images/more").mkdir()
    shutil.copy(shapes / "images/003.png", shapes / "images/more")
    assert "several images are called 003" in error(run(f"{predict} --output=others"))
    shutil.rmtree(shapes / "images/more")

    run("export --run=last --format=pt2 --output=exported").check()
    manifest = read_json(Path("exported/manifest.json"))
    assert manifest["parity"]["difference"] < 1e-4
    assert manifest["metrics"]["exported"]["test/iou"] == pytest.approx(iou, abs=1e-3)
    served = load_serving(Path("exported"), manifest)
    sample = served.read(Path("shapes/images/000.png").read_bytes())
    assert sample.inputs[0].shape == (1, 1, 48, 48)
    outputs = {"mask": (masks[0] == [[[0]], [[128]], [[255]]])[None]}
    answer = base64.b64decode(served.answer(outputs, {})["mask"])
    assert answer == Path("out/000.png").read_bytes()


def test_a_table_names_images_masks_and_groups(shapes):
    """Images may be of many sizes then, and their masks are fitted like them."""
    small(shapes / "images/003.png")
    small(shapes / "masks/003.png")
    table = pd.DataFrame({"patient": np.arange(80) // 4})
    for column, folder in (("file", "images"), ("truth", "masks")):
        table[column] = [f"{folder}/{number:03}.png" for number in range(80)]
    table.to_csv(shapes / "table.csv", index=False)
    data = Masks(
        path=str(shapes / "table.csv"), target="truth", group_column="patient",
        image_size=(32, 40), resize="pad", batch_size=8,
    )  # fmt: skip
    images, masks = next(data.batches("train"))
    assert (images.shape, masks.shape) == ((8, 1, 32, 40), (8, 32, 40))
    assert data.facts.output_names == ["0", "128", "255"]
    groups = [{*(part.positions.numpy() // 4)} for part in data.by_split.values()]
    assert len(set.union(*groups)) == sum(map(len, groups)) == 20
    mask = data.facts.target.read(str(shapes / "masks/003.png"))
    assert (mask[:, :4] == 0).all()  # what pads it
    assert (mask > 0).mean() > 0.05


def test_what_is_refused(run, shapes):
    image, mask = shapes / "images/003.png", shapes / "masks/003.png"
    small(image)
    assert "set --data.image_size" in error(run(FIT))
    mask.write_text("x")
    assert "masks/003.png: it can't be read" in error(run(FIT))
    mask.unlink()
    assert "masks/003.png does not exist; add it" in error(run(FIT))
    shutil.rmtree(image.parent)
    image.parent.mkdir()
    assert "shapes/images does not exist; add it" in error(run(FIT))


def test_the_page_on_a_task_of_your_own():
    """It shows this model."""
    [shown] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/own_task.md").read_text(), re.DOTALL)
    assert shown.partition("\n")[2] in CONFIG.with_name("model.py").read_text()


def small(file: Path) -> None:
    Image.open(file).resize((20, 20), Image.Resampling.NEAREST).save(file)
