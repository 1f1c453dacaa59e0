"""A run of each kind of data, what ``predict`` says of some inputs, and servers."""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import command
from tests.litlab.conftest import BRIEF, CONFIGS
from tests.litlab.serve.client import Server

PREDICT = "--trainer.accelerator=cpu"


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
def examples(images, texts, series, tmp_path_factory) -> dict[str, Example]:
    """A run of each kind, trained for an epoch or two, of which the data is gone, and its predictions."""
    folder = tmp_path_factory.mktemp("served")
    inputs = {
        "images": images / "test/class_3/1.png", "texts": folder / "texts.csv", "series": folder / "series.csv",
        "rows": folder / "rows.csv", "targets": folder / "rows.csv",
    }  # fmt: skip
    lines = texts.read_text().splitlines()
    inputs["texts"].write_text("\n".join([*lines[:4], f"class_0,{'wind <br /> Snow! ' * 30}"]) + "\n")
    inputs["series"].write_text("\n".join(series.read_text().splitlines()[:301]) + "\n")
    inputs["rows"].write_text(ROWS)
    data = {
        "images": ["--data.dataset=folder", f"--data.path={images}"],
        "texts": ["--data.dataset=csv", f"--data.path={texts}"],
        "series": ["--data.dataset=csv", f"--data.path={series}", "--data.targets=[load,heat]", *CALENDAR],
        "rows": [],
        "targets": ["--model=Regressor", "--model.network=acme.table.Flat", "--data.target=[spend]"],
    }
    configs = {"texts": "text", "rows": "table", "targets": "table"}
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.set_num_threads(1)
        for kind, flags in data.items():
            config, name = CONFIGS / f"{configs.get(kind, kind)}.yaml", f"--experiment={kind}"
            assert command(patch, "fit", "--config", config, *flags, *BRIEF, name, package="acme") == 0
            run, output = folder / "lightning_logs" / kind / "version_0", folder / f"{kind}_predicted.csv"
            arguments = ["--run", run, "--input", inputs[kind], "--output", output, PREDICT]
            assert command(patch, "predict", *arguments, package="acme") == 0
            rows = list(csv.DictReader(io.StringIO(output.read_text())))
            found[kind] = Example(run, inputs[kind], rows)
    return found


CALENDAR = ["--data.covariates=[hour,weekday]", "--data.split=[0.6, 0.2, 0.2]"]
ROWS = """age,income,visits,distance,plan,city,channel,other
41,52000,3,12.5,family,city 01,web,x
20,,1,0.5,student,nowhere,phone,y
63,31000.5,12,40,,city 02,shop,z
"""


@pytest.fixture(scope="session")
def start(tmp_path_factory) -> Iterator[Callable[..., Server]]:
    """Starts servers, which end with the session."""
    started: list[Server] = []

    def start_one(*arguments: object, environment: dict[str, Any] | None = None) -> Server:
        server = Server(tmp_path_factory.mktemp("server"), *arguments, environment=environment)
        started.append(server)
        return server

    yield start_one
    for server in started:
        server.end()
