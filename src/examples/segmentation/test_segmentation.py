"""Segmentation: from images and masks to a run, predictions and an export."""

import base64
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from examples.segmentation.data import Masks
from litlab.artifact.trusted import load_serving
from litlab.commands.export import export_run
from litlab.data import Augment
from litlab.data.generated import make_shapes
from litlab.testing import ModuleContract
from tests.conftest import ROOT

CONFIG = Path(__file__).with_name("config.yaml")
FAST = ["--trainer.max_epochs=2", "--model.network.width=8", "--trainer.precision=32-true"]


@pytest.fixture
def shapes(run, tmp_path) -> Path:
    """A folder of drawn shapes and their masks."""
    for kind, pictures in zip(("images", "masks"), make_shapes(80), strict=True):
        (tmp_path / "shapes" / kind).mkdir(parents=True)
        for number, picture in enumerate(pictures):
            Image.fromarray(picture).save(tmp_path / f"shapes/{kind}/{number:02}.png")
    return tmp_path / "shapes"


class TestSegmenter(ModuleContract):
    config = CONFIG
    settings = ("--data.batch_size=8", "--trainer.callbacks=[]")
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
    done = run("fit", "--config", CONFIG, "--data.dataset=folder", "--data.path=shapes", *FAST)
    assert done.code == 0, done.err
    folder = Path("lightning_logs/segmentation/version_0")
    assert (folder / "masks.png").is_file()
    iou = json.loads((folder / "metrics.json").read_text())["test"]["test/iou"]

    done = run("predict", "--run=last", "--input=shapes/images", "--output=out")
    assert done.code == 0, done.err
    masks = [np.asarray(Image.open(file)) for file in sorted(Path("out").glob("*.png"))]
    assert len(masks) == 80
    assert {*np.unique(masks)} <= {0, 128, 255}
    (shapes / "images/more").mkdir()
    shutil.copy(shapes / "images/03.png", shapes / "images/more")
    done = run("predict", "--run=last", "--input=shapes/images", "--output=others")
    assert (done.code, "several images are called 03" in done.err) == (2, True), done.err
    shutil.rmtree(shapes / "images/more")

    assert run("export", "--run=last", "--format=pt2", "--output=exported").code == 0
    manifest = json.loads(Path("exported/manifest.json").read_text())
    assert manifest["parity"]["difference"] < 1e-4
    assert manifest["metrics"]["exported"]["test/iou"] == pytest.approx(iou, abs=1e-3)
    served = load_serving(Path("exported"), manifest)
    sample = served.read(Path("shapes/images/00.png").read_bytes())
    assert sample.inputs[0].shape == (1, 1, 48, 48)
    outputs = {"mask": (np.asarray(Image.open("out/00.png")) == [[[0]], [[128]], [[255]]])[None]}
    answer = base64.b64decode(served.answer(outputs, {})["mask"])
    assert answer == Path("out/00.png").read_bytes()


def test_a_table_names_images_masks_and_groups(shapes):
    """Images may be of many sizes then, and their masks are fitted like them."""
    small(shapes / "images/03.png")
    small(shapes / "masks/03.png")
    files = [f"{number:02}.png" for number in range(80)]
    columns = {"file": [f"images/{file}" for file in files], "patient": [n // 4 for n in range(80)]}
    table = pd.DataFrame({**columns, "truth": [f"masks/{file}" for file in files]})
    table.to_csv(shapes / "table.csv", index=False)
    data = Masks(
        path=str(shapes / "table.csv"), target="truth", group_column="patient",
        image_size=(32, 40), resize="pad", batch_size=8,
    )  # fmt: skip
    images, masks = next(data.batches("train"))
    assert (images.shape, masks.shape) == ((8, 1, 32, 40), (8, 32, 40))
    assert data.facts.output_names == ["0", "128", "255"]
    groups = [
        set(data.by_split[split].positions.numpy() // 4) for split in ("train", "val", "test")
    ]
    assert len(set.union(*groups)) == sum(map(len, groups)) == 20
    mask = data.facts.target.read(str(shapes / "masks/03.png"))
    assert (mask[:, :4] == 0).all()  # what pads it
    assert (mask > 0).mean() > 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda root: (root / "masks/03.png").unlink(),
            "masks/03.png does not exist; add it",
        ),
        (lambda root: small(root / "images/03.png"), "set --data.image_size"),
        (lambda root: (root / "masks/03.png").write_text("x"), "masks/03.png: it can't be read"),
        (
            lambda root: [file.unlink() for file in root.glob("images/*")],
            "shapes/images does not exist; add it",
        ),
    ],
)
def test_what_is_refused(run, shapes, change, message):
    change(shapes)
    done = run("fit", "--config", CONFIG, "--data.dataset=folder", "--data.path=shapes")
    assert (done.code, message in done.err) == (2, True), done.err


def test_the_page_on_a_task_of_your_own():
    """It shows this model."""
    [shown] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/own_task.md").read_text(), re.DOTALL)
    assert shown.partition("\n")[2] in CONFIG.with_name("model.py").read_text()


def small(file: Path) -> None:
    image = Image.open(io.BytesIO(file.read_bytes()))
    image.resize((20, 20), Image.Resampling.NEAREST).save(file)
