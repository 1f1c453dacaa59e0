"""A run of each kind of data, what ``predict`` says of some inputs, what answers in this process, and servers."""

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from litlab.artifact.manifest import FILES, MANIFEST, sha256
from litlab.cli.argv import ALONE
from litlab.commands.export.graph import trace
from litlab.commands.serve.answerer import Answerer
from litlab.commands.serve.model import load_model
from litlab.commands.serve.run_model import RunModel
from litlab.util.team import use_package
from tests.conftest import command
from tests.litlab.commands.serve.client import Server
from tests.litlab.conftest import BRIEF, CONFIGS


@dataclass(frozen=True)
class Example:
    """A run, and what it predicts.

    Args:
        run: Its folder.
        input: A file to predict from.
        predicted: The rows that ``predict`` has written.
    """

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
    copies = {"images": folder / "images", "texts": folder / "train.csv", "series": folder / "train_series.csv"}
    data = {
        "images": ["--data.dataset=folder", f"--data.path={copies['images']}"],
        "texts": ["--data.dataset=csv", f"--data.path={copies['texts']}"],
        "series": ["--data.dataset=csv", f"--data.path={copies['series']}", "--data.targets=[load,heat]", *CALENDAR],
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
            source = {"images": images, "texts": texts, "series": series}.get(kind)
            if source is not None:
                (shutil.copytree if source.is_dir() else shutil.copy)(source, copies[kind])
            config, name = CONFIGS / f"{configs.get(kind, kind)}.yaml", f"--experiment={kind}"
            assert command(patch, "fit", "--config", config, *data[kind], *BRIEF, name, package="auks") == 0
            run, output = folder / "lightning_logs" / kind / "version_0", folder / f"{kind}_predicted.csv"
            arguments = ["--run", run, "--input", inputs[kind], "--output", output, "--trainer.accelerator=cpu"]
            assert command(patch, "predict", *arguments, package="auks") == 0
        for copy in (copies.get(kind), folder / "data"):
            if copy is not None and copy.exists():
                shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
        return Example(run, inputs[kind], list(csv.DictReader(io.StringIO(output.read_text()))))

    return of


CALENDAR = ["--data.covariates=[hour,weekday]", "--data.val_fraction=0.2"]
ROWS = """age,income,visits,distance,plan,city,channel,other
41,52000,3,12.5,family,city 01,web,x
20,,1,0.5,student,nowhere,phone,y
63,31000.5,12,40,,city 02,shop,z
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Iterator[Callable[..., Server]]:
    """Starts servers, which end with the file."""
    started: list[Server] = []

    def start_one(*arguments: object, environment: dict[str, Any] | None = None) -> Server:
        server = Server(tmp_path_factory.mktemp("server"), *arguments, environment=environment)
        started.append(server)
        return server

    yield start_one
    for server in started:
        server.end()


@pytest.fixture(scope="module")
def answerers(example, tmp_path_factory) -> Callable[[str, str], Answerer]:
    """What answers for a kind, from its run or an export."""
    made: dict[tuple[str, str], Answerer] = {}

    def of(kind: str, source: str) -> Answerer:
        if (kind, source) not in made:
            use_package("auks")
            model = load_model(str(example(kind).run), [], 1)
            made[kind, "run"] = Answerer(model)
            folder = tmp_path_factory.mktemp(kind)
            export(RunModel(["test", "--run", str(example(kind).run), *ALONE]), folder)
            made[kind, "export"] = Answerer(load_model(str(folder), [], 1))
        return made[kind, source]

    return of


def export(model: RunModel, folder: Any) -> None:
    """What ``export`` writes, as far as a server reads it."""
    torch.export.save(trace(model.servable, model.servable.serving), folder / FILES["pt2"])
    for name, text in model.files.items():
        (folder / name).write_text(text)
    digests = {name: sha256(folder / name) for name in (FILES["pt2"], *model.files)}
    (folder / MANIFEST).write_text(json.dumps({**model.manifest, "format": "pt2", "files": digests}))
