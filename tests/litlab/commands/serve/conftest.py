"""A run of each kind of data, two exports, what ``predict`` says of an input, and clients."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from starlette.testclient import TestClient

from litlab.artifact.servable import load_servable
from litlab.artifact.trusted import remember
from litlab.commands.export.folder import write_manifest
from litlab.commands.export.graph import write_graph
from litlab.commands.serve.app import build_app
from litlab.commands.serve.batcher import Batcher
from litlab.commands.serve.model import Model, load_model
from litlab.commands.serve.options import ServeOptions
from litlab.util.team import use_package
from tests.conftest import BRIEF, command
from tests.litlab.conftest import CONFIGS

ROWS = """age,income,visits,distance,plan,city,channel,other
41,52000,3,12.5,family,city 01,web,x
20,,1,0.5,student,nowhere,phone,y
63,31000.5,12,40,,city 02,shop,z
"""


@dataclass(frozen=True)
class Example:
    """A run, the content of a file to predict from, and the rows that ``predict`` has written."""

    run: Path
    content: bytes
    predicted: list[dict[Any, Any]]


@pytest.fixture(scope="session")
def example(images, texts, series, tmp_path_factory) -> Callable[[str], Example]:
    """A run of a kind, trained for an epoch, of which the data is gone, and its predictions."""
    folder = tmp_path_factory.mktemp("served")
    given = folder / "given"
    contents = {
        "images": (images / "test/class_3/1.png").read_bytes(),
        "texts": b"label,text\nclass_0," + b"wind <br /> Snow! " * 30,
        "series": b"".join(series.read_bytes().splitlines(keepends=True)[:301]),
        "rows": ROWS.encode(),
    }
    flags = {
        "images": f"images.yaml --data.dataset=folder --data.path={given}/images",
        "texts": f"text.yaml --data.dataset=csv --data.path={given}/texts.csv",
        "series": f"series.yaml --data.dataset=csv --data.path={given}/series.csv "
        "--data.targets=[load,heat] --data.covariates=[hour,weekday] --data.val_fraction=0.2",
        "rows": "table.yaml --model=Regressor --model.network=auks.table.Flat "
        "--data.target=[spend]",
    }

    @cache
    def of(kind: str) -> Example:
        use_package("auks")
        torch.set_num_threads(1)
        shutil.copytree(images, given / "images")
        shutil.copy(texts, given / "texts.csv")
        shutil.copy(series, given / "series.csv")
        file = folder / ("input.png" if kind == "images" else "input.csv")
        file.write_bytes(contents[kind])
        run, output = folder / "lightning_logs" / kind / "version_0", folder / "predicted.csv"
        fit = f"fit --config={CONFIGS}/{flags[kind]} --experiment={kind}"
        predict = f"predict --run={run} --input={file} --output={output} --trainer.accelerator=cpu"
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert command(patch, fit, *BRIEF, package="auks") == 0
            assert command(patch, predict, package="auks") == 0
        shutil.rmtree(given)
        shutil.rmtree(folder / "data", ignore_errors=True)
        return Example(run, contents[kind], pd.read_csv(output).to_dict("records"))

    return of


@pytest.fixture(scope="session")
def exported(example, tmp_path_factory) -> Iterator[Path]:
    """The run of texts as an export, in the format that takes least time; it is trusted, as if
    exported here.
    """
    folder = tmp_path_factory.mktemp("exported")
    _, reference, manifest = load_servable(str(example("texts").run), [])
    write_graph("torchscript", None, reference, folder / "model.ts")
    write_manifest(folder, manifest | {"format": "torchscript", "versions": {}})
    for name, text in reference.serving.files().items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        remember(folder)
        yield folder


@pytest.fixture(scope="session")
def models(example, request) -> Callable[[str], Model]:
    """What is served: the run of a kind, or the export."""

    @cache
    def load(kind: str) -> Model:
        use_package("auks")
        source = request.getfixturevalue("exported") if kind == "exported" else example(kind).run
        return load_model(str(source), [], workers=1)

    return load


@pytest.fixture
def client(models) -> Iterator[Callable[..., TestClient]]:
    """A client of the application for a model, in this process; a bug in the application is raised
    here.
    """
    with ExitStack() as stack:

        def connect(kind: str) -> TestClient:
            model = models(kind)
            app = build_app(model.manifest, Batcher(model.answer, 32), ServeOptions(package="auks"))
            return stack.enter_context(TestClient(app, base_url="http://localhost"))

        yield connect
