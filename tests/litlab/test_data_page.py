"""docs/data.md: its DataModule, network and config, as files of a team's package, in all verbs."""

import csv
import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from litlab.checkpointing.io import load_checkpoint
from tests.conftest import PACKAGE, ROOT
from tests.litlab.pages import blocks

PAGE = (ROOT / "docs/data.md").read_text()
FILES = re.compile(r"^`(\S+\.(?:py|yaml))`(?:(?!^```).)*^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEAM = "sensor_team"
FOLDER = Path("lightning_logs/sensors/version_0")


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A package with the page's files, which the page puts into the team's."""
    folder = tmp_path_factory.mktemp("page")
    written = FILES.findall(PAGE)
    assert len(written) == 3
    for name, text in written:
        path = folder / name.replace(f"src/{PACKAGE}", TEAM)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(f"{PACKAGE}.", f"{TEAM}."))
    for package in (folder / TEAM, *(folder / TEAM).iterdir()):
        (package / "__init__.py").touch()
    sys.path.append(str(folder))  # it stays: the parser lists all subclasses that this process knows, and imports them
    return TEAM


@pytest.fixture
def config(team) -> Path:
    return Path(importlib.import_module(team).__path__[0]).parent / "configs/sensors.yaml"


@pytest.fixture
def recordings(tmp_path) -> Path:
    """Five recordings of two activities, as CSV files."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(("lying", "running")):
        folder = tmp_path / "recordings" / name
        folder.mkdir(parents=True)
        for number in range(5):
            rows = rng.normal(0, 1 + 3 * label, (200, 2))
            np.savetxt(folder / f"{number}.csv", rows, delimiter=",", header="x,y", comments="")
    return tmp_path / "recordings"


def test_it_is_short():
    code = [line for kind in ("python", "yaml") for block in blocks("data.md", kind) for line in block.splitlines()]
    assert len([line for line in code if line.strip()]) < 150


@pytest.mark.filterwarnings("ignore:No positive samples")  # AUROC of a class that few samples don't have
def test_all_verbs(run, config, recordings):
    done = run("fit", "--config", config, "--check")
    assert done.code == 0, done.err
    done = run("fit", "--config", config, "--trainer.accelerator=cpu")
    assert done.code == 0, done.err
    assert "nearest mean" in done.out
    results = json.loads((FOLDER / "metrics.json").read_text())
    assert results["test"]["test/acc"] > 0.9
    assert results["best"]["monitor"] == "val/auroc"
    assert json.loads((FOLDER / "baselines.json").read_text())["nearest mean"]["test/acc"] > 0.6
    network = yaml.safe_load((FOLDER / "config.yaml").read_text())["model"]["init_args"]["network"]
    assert network["init_args"] == {"width": 32, "channels": 3, "num_classes": 3}
    done = run("test", "--run", "sensors")
    assert done.code == 0, done.err
    assert f"{results['test']['test/auroc']:.4g}" in done.out

    made_up = importlib.import_module(f"{TEAM}.data.sensors").made_up
    np.savetxt("recording.csv", made_up(3.0, 99), delimiter=",", header="x,y,z", comments="")
    done = run("predict", "--run", "sensors", "--input", "recording.csv", "--output", "activities.csv")
    assert done.code == 0, done.err
    rows = list(csv.DictReader(Path("activities.csv").read_text().splitlines()))
    assert [row["row"] for row in rows] == [str(32 * number) for number in range(30)]
    assert {row["prediction"] for row in rows} == {"running"}


def test_ones_own_recordings(run, config, recordings):
    own = [f"--data.path={recordings}", "--data.window=20", "--trainer.max_epochs=1", "--trainer.log_every_n_steps=1"]
    done = run("fit", "--config", config, *own, "--trainer.accelerator=cpu")
    assert done.code == 0, done.err
    metadata = load_checkpoint(FOLDER / "checkpoints/last.ckpt")["SensorData"]
    assert (metadata["class_names"], metadata["window"], len(metadata["mean"])) == (["lying", "running"], 20, 2)
    done = run("test", "--run", "sensors", "--data.path=null")  # recordings that are made up have other classes
    assert done.code == 2
    assert (
        "data: the checkpoint was trained with class_names ['lying', 'running'], here it is ['running', 'still'"
        in done.err
    )


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--data.path=nowhere"], r"error: data\.path: nowhere has no <activity>/\*\.csv; name the folder"),
        (["--data.window=1"], r"error: data\.window: 1 is not valid; it must be at least 2"),
        (["--data.window=2000"], r"error: data\.window: 2000 is longer than a recording of 1000 rows; make it shorter"),
        (["--data.path=bad"], r"error: bad/still/1\.csv: could not convert string 'a' .*; give a CSV file of numbers"),
    ],
)
def test_bad_input_is_one_line(run, config, flags, says):
    Path("bad/still").mkdir(parents=True)
    Path("bad/still/1.csv").write_text("x,y\n1,a\n")
    done = run("fit", "--config", config, *flags)
    assert done.code == 2
    [line] = [line for line in done.err.splitlines() if "error" in line]
    assert re.match(says, line), line


def test_batches_are_scaled(team):
    data = importlib.import_module(f"{team}.data.sensors").SensorData(batch_size=50)
    values = torch.cat([values for values, _ in data.batches("train")])
    assert values.shape[1:] == (3, 64)
    torch.testing.assert_close(values.mean((0, 2)), torch.zeros(3), atol=0.05, rtol=0)
    assert sorted(data.sizes.values()) == [270, 270, 810]
