"""A kind of data of a team's own, images and masks (auks/shapes.py): all commands take it, and
what it does not define is said in one line.
"""

import base64
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from litlab.artifact.trusted import load_serving
from litlab.commands.export import export_run
from litlab.errors import UserError
from litlab.runs.folder import read_json
from tests.conftest import command
from tests.litlab.commands.serve.test_server import ask_for, fork_server, wait_for_port
from tests.litlab.runs.conftest import error

FIT = """
    fit --experiment=seg --model=ShapeFinder --model.optimizer=torch.optim.AdamW
    --model.optimizer.lr=0.02 --data=Shapes --data.path=shapes --data.batch_size=12
    --trainer.max_epochs=12 --trainer.accelerator=cpu --trainer.precision=32-true --compile=null
    --seed_everything=0 --trainer.log_every_n_steps=1
"""
EXPORT = "export --run=seg --format=onnx"
RUN = Path("lightning_logs/seg/version_0")


def draw_shapes(folder: Path) -> None:
    """Discs and boxes, brighter than what is around them, with noise."""
    random, (y, x) = np.random.default_rng(0), np.mgrid[:24, :32]
    for split, count in (("train", 48), ("val", 12), ("test", 12)):
        for number in range(count):
            dy, dx = y - random.uniform(6, 18), x - random.uniform(6, 26)
            size = random.uniform(3, 6)
            mask = dy**2 + dx**2 < size**2 if number % 2 else (abs(dy) < size) & (abs(dx) < size)
            image = np.clip(60 + 120 * mask + random.normal(0, 25, mask.shape), 0, 255)
            for kind, pixels in (("images", image), ("masks", 255 * mask)):
                file = folder / split / kind / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.astype(np.uint8)).save(file)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """A folder with the shapes, a run, and its export."""
    folder = tmp_path_factory.mktemp("own")
    draw_shapes(folder / "shapes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(export_run, "SECONDS", 0.001)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        for line in (FIT, EXPORT):
            assert command(patch, line, package="auks") == 0
    return folder


@pytest.fixture
def at(fitted, run, monkeypatch) -> Path:
    """Commands run where the run is."""
    monkeypatch.chdir(fitted)
    return fitted


@pytest.fixture
def exported(fitted, tmp_path) -> Path:
    """A copy of the export, to be changed."""
    return shutil.copytree(fitted / RUN / "exported/onnx", tmp_path / "export")


def open_mask(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)))


def test_run_and_export_are_tested_and_compared(at, run):
    assert run("test --run=seg").code == 0
    metrics = read_json(RUN / "metrics.json")["test"]
    assert metrics["test/iou"] > 0.8
    manifest = read_json(RUN / "exported/onnx/manifest.json")
    assert manifest["parity"]["difference"] < 1e-4
    assert manifest["metrics"]["exported"]["test/iou"] == pytest.approx(metrics["test/iou"])
    assert manifest["serving"] == "auks.shapes.ShapesServing"


def test_predictions_are_a_folder_that_is_replaced_while_it_is_unchanged(at, run):
    predict = "predict --run=seg --input=shapes/test/images"
    for flag, folder in (("", RUN / "predictions"), ("--output=out", "out")):
        for _ in range(2):
            done = run(f"{predict} {flag}")
            assert (done.code, f"Predictions: {folder}" in done.err) == (0, True), done.err
        assert len(list(Path(folder).glob("*.png"))) == 12
    hits = [
        (open_mask(Path("out", file.name).read_bytes()) == open_mask(file.read_bytes())).mean()
        for file in Path("shapes/test/masks").iterdir()
    ]
    assert np.mean(hits) > 0.95
    Path("out/mine.txt").touch()
    assert "something else is there, or it was changed" in error(run(f"{predict} --output=out"))
    assert Path("out/mine.txt").is_file()


@pytest.mark.parametrize("served", ["seg", RUN / "exported/onnx"], ids=str)
def test_masks_are_served(at, run, request, served):
    """By the run as by its export, and these are those of ``predict``."""
    assert run("predict --run=seg --input=shapes/test/images --output=same").code == 0
    server = fork_server("--run", served, cwd=at)
    request.addfinalizer(server.kill)
    port = wait_for_port(server)
    for number in range(3):
        content = Path(f"shapes/test/images/{number}.png").read_bytes()
        predicted = Path("same", f"{number}.png").read_bytes()
        status, answer = ask_for(port, image=base64.b64encode(content).decode())
        assert status == 200, answer
        assert (open_mask(base64.b64decode(answer["mask"])) == open_mask(predicted)).all()
    for bad in ("xx", 3, base64.b64encode(b"\x89PNG").decode()):
        status, answer = ask_for(port, image=bad)
        assert (status, answer["error"].startswith("image: ")) == (422, True), answer


NAMED = """
    os.system torch.nn.Linear torch.nn.modules.linear.Linear auks.segmenter.ShapeFinder
    auks.shapes.Shapes auks.shapes.torch auks.shapes.draw auks.nothing.Serving
    litlab.data.serving.TensorSpec litlab.data.serving.torch.nn.Linear litlab.cli.main.run_command
    litlab.errors.UserError ShapesServing
"""


@pytest.mark.parametrize("named", [*NAMED.split(), "", None, 3, ["auks.shapes.ShapesServing"]])
def test_a_manifest_may_name_a_serving_alone(exported, named):
    """Of litlab or the team; whoever has made the folder says what it is."""
    manifest = read_json(exported / "manifest.json") | {"serving": named}
    with pytest.raises(UserError, match=rf"^{exported}/manifest.json: .* no Serving of litlab or"):
        load_serving(exported, manifest)


@pytest.mark.parametrize("facts", [{}, {"size": 3}, {"size": [24, 32], "more": 1}, [], None])
def test_facts_of_another_class_are_refused(exported, facts):
    manifest = read_json(exported / "manifest.json") | {"facts": facts}
    with pytest.raises(UserError, match=r"its facts are not those of ShapesServing .*; export the"):
        load_serving(exported, manifest)


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        ("Unserved", "export: Unserved has no serving(); use a DataModule that has one"),
        ("Plain", "--run: Plain has no serving(), without which nothing is exported or served"),
    ],
)
def test_data_without_serving_is_refused(at, run, data, refusal):
    """Where something is to be exported or served, not before."""
    line = FIT.replace("=Shapes", f"={data}").replace("=seg", f"={data}")
    assert run(f"{line} --trainer.max_epochs=1").code == 0
    assert error(run(f"export --format=onnx --run={data}")).startswith(f"error: {refusal}")
    server = fork_server("--run", data, cwd=at)
    assert server.wait() == 2
    assert server.printed()[0].splitlines()[-1].startswith(f"error: {refusal}")
