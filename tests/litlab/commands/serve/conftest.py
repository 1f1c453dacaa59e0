"""A run of each kind of data, two exports, what ``predict`` says of an input, and clients."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pandas as pd
import pytest
from starlette.testclient import TestClient

from litlab.artifact.servable import load_servable
from litlab.artifact.trusted import remember
from litlab.commands.export.folder import write_manifest
from litlab.commands.export.graph import write_graph
from litlab.commands.serve.app import build_app
from litlab.commands.serve.batcher import Batcher
from litlab.commands.serve.model import Model, load_model
from litlab.commands.serve.options import ServeOptions
from tests.conftest import BRIEF, command
from tests.litlab.conftest import CONFIGS

ROWS = """age,income,visits,distance,plan,city,channel,other
41,52000,3,12.5,family,city 01,web,x
20,,1,0.5,student,nowhere,phone,y
63,31000.5,12,40,,city 02,shop,z
"""


FLAGS = {
    "images": "images.yaml --data.dataset=folder --data.path=images",
    "texts": "text.yaml --data.dataset=csv --data.path=texts.csv",
    "series": "series.yaml --data.dataset=csv --data.path=series.csv --data.targets=[load,heat] "
    "--data.covariates=[hour,weekday] --data.val_fraction=0.2",
    "rows": "table.yaml --model=Regressor --model.network=auks.table.Flat --data.target=[spend]",
}


@dataclass(frozen=True)
class Example:
    """A run, the content of a file to predict from, and the table that ``predict`` has written."""

    run: Path
    content: bytes
    predicted: pd.DataFrame


@pytest.fixture
def example(images, texts, series, make_once) -> Callable[[str], Example]:
    """A run of a kind, trained for an epoch, and its predictions; its data is not where it was."""
    contents = {
        "images": (images / "test/class_3/1.png").read_bytes(),
        "texts": b"label,text\nclass_0," + b"wind <br /> Snow! " * 30,
        "series": b"".join(series.read_bytes().splitlines(keepends=True)[:301]),
        "rows": ROWS.encode(),
    }

    def train(kind, folder):
        shutil.copytree(images, folder / "images")
        shutil.copy(texts, folder / "texts.csv")
        shutil.copy(series, folder / "series.csv")
        file = folder / ("input.png" if kind == "images" else "input.csv")
        file.write_bytes(contents[kind])
        fit = f"fit --config={CONFIGS}/{FLAGS[kind]} --experiment={kind} {' '.join(BRIEF)}"
        predict = f"predict --run={kind} --input={file} --output=out.csv --trainer.accelerator=cpu"
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            for line in (fit, predict):
                assert command(patch, line, package="auks") == 0

    def of(kind):
        folder = make_once(f"served_{kind}", partial(train, kind))
        predicted = pd.read_csv(folder / "out.csv")
        return Example(folder / "lightning_logs" / kind / "version_0", contents[kind], predicted)

    return of


@pytest.fixture
def exported(example, make_once, monkeypatch) -> Path:
    """The run of texts as an export, in the format that takes least time; it is trusted, as if
    exported here.
    """

    def export(folder):
        _, reference, manifest = load_servable(str(example("texts").run), [])
        write_graph("torchscript", None, reference, folder / "model.ts")
        write_manifest(folder, manifest | {"format": "torchscript", "versions": {}})
        for name, text in reference.serving.files().items():
            (folder / name).write_text(text)

    folder = make_once("served_export", export)
    monkeypatch.setenv("XDG_CACHE_HOME", f"{folder}-cache")
    remember(folder)
    return folder


@cache
def load(source: Path) -> Model:
    return load_model(str(source), [], workers=1)


@pytest.fixture
def models(example, exported) -> Callable[[str], Model]:
    """What is served: the run of a kind, or the export."""
    return lambda kind: load(exported if kind == "exported" else example(kind).run)


@pytest.fixture
def client(models) -> Iterator[Callable[..., TestClient]]:
    """A client of the application for a model, in this process; a bug in the application is raised
    here.
    """
    with ExitStack() as stack:

        def connect(kind):
            model = models(kind)
            app = build_app(model.manifest, Batcher(model.answer, 32), ServeOptions(package="auks"))
            return stack.enter_context(TestClient(app, base_url="http://localhost"))

        yield connect
