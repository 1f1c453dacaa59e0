"""A run of each kind of data and its export, what ``predict`` says of some inputs, and clients."""

import csv
import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from litlab.commands.serve.app import build_app
from litlab.commands.serve.model import Model, load_model
from litlab.commands.serve.options import ServeOptions
from litlab.util.team import use_package
from tests.conftest import command
from tests.litlab.conftest import BRIEF, CONFIGS


@dataclass(frozen=True)
class Example:
    """A run, a file to predict from, and the rows that ``predict`` has written."""

    run: Path
    input: Path
    predicted: list[dict[str, str]]


@pytest.fixture(scope="session")
def example(images, texts, series, tmp_path_factory) -> Callable[[str], Example]:
    """A run of a kind, trained for an epoch, of which the data is gone, and its predictions."""
    folder = tmp_path_factory.mktemp("served")
    inputs = {
        "images": images / "test/class_3/1.png", "texts": folder / "texts.csv", "series": folder / "series.csv",
        "rows": folder / "rows.csv", "targets": folder / "rows.csv",
    }  # fmt: skip
    lines = texts.read_text().splitlines()
    inputs["texts"].write_text("\n".join([*lines[:4], f"class_0,{'wind <br /> Snow! ' * 30}"]) + "\n")
    inputs["series"].write_text("\n".join(series.read_text().splitlines()[:301]) + "\n")
    inputs["rows"].write_text(ROWS)
    given = folder / "given"
    data = {
        "images": ["--data.dataset=folder", f"--data.path={given}/images"],
        "texts": ["--data.dataset=csv", f"--data.path={given}/texts.csv"],
        "series": ["--data.dataset=csv", f"--data.path={given}/series.csv", "--data.targets=[load,heat]", *CALENDAR],
        "rows": [],
        "targets": ["--model=Regressor", "--model.network=auks.table.Flat", "--data.target=[spend]"],
    }
    configs = {"texts": "text", "rows": "table", "targets": "table"}

    @cache
    def of(kind: str) -> Example:
        use_package("auks")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            torch.set_num_threads(1)
            shutil.copytree(images, given / "images")
            shutil.copy(texts, given / "texts.csv")
            shutil.copy(series, given / "series.csv")
            config, name = CONFIGS / f"{configs.get(kind, kind)}.yaml", f"--experiment={kind}"
            assert command(patch, "fit", "--config", config, *data[kind], *BRIEF, name, package="auks") == 0
            run, output = folder / "lightning_logs" / kind / "version_0", folder / f"{kind}_predicted.csv"
            arguments = ["--run", run, "--input", inputs[kind], "--output", output, "--trainer.accelerator=cpu"]
            assert command(patch, "predict", *arguments, package="auks") == 0
            form = "onnx" if kind in ("images", "texts") else "pt2"
            assert command(patch, "export", "--run", run, "--format", form, package="auks") == 0
        shutil.rmtree(given)
        shutil.rmtree(folder / "data", ignore_errors=True)
        return Example(run, inputs[kind], list(csv.DictReader(io.StringIO(output.read_text()))))

    return of


CALENDAR = ["--data.covariates=[hour,weekday]", "--data.val_fraction=0.2"]
ROWS = """age,income,visits,distance,plan,city,channel,other
41,52000,3,12.5,family,city 01,web,x
20,,1,0.5,student,nowhere,phone,y
63,31000.5,12,40,,city 02,shop,z
"""


@pytest.fixture(scope="session")
def models(example) -> Callable[[str, str], Model]:
    """What is served of a kind: its run, or an export of it."""

    @cache
    def load(kind: str, source: str) -> Model:
        use_package("auks")
        run = example(kind).run
        return load_model(str(run if source == "run" else run / "exported" / source), [], workers=1)

    return load


@pytest.fixture
def client(models) -> Iterator[Callable[..., TestClient]]:
    """A client of the application for a model, in this process; a bug in the application is raised here."""
    with ExitStack() as stack:

        def connect(kind: str, source: str = "run") -> TestClient:
            model = models(kind, source)
            app = build_app(model.manifest, model.answer, ServeOptions(package="auks"))
            return stack.enter_context(TestClient(app, base_url="http://localhost"))

        yield connect
