"""docs/data.md: its DataModule, network and config, as files of a team's package, in all verbs;
and what docs/deploy.md adds to them.
"""

import csv
import importlib
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from litlab.artifact.servable import load_servable
from tests.conftest import PACKAGE, ROOT
from tests.litlab.runs.conftest import error

PAGE = (ROOT / "docs/data.md").read_text()
[SERVING] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/deploy.md").read_text(), re.DOTALL)
FILES = re.compile(
    r"^`(\S+\.(?:py|yaml))`(?:(?!^```).)*^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
TEAM = "sensor_team"
FOLDER = Path("lightning_logs/sensors/version_0")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A folder with the page's files, in a package where the page puts them into the team's."""
    folder = tmp_path_factory.mktemp("page")
    written = FILES.findall(PAGE)
    assert len(written) == 3
    for name, text in written:
        path = folder / name.replace(f"src/{PACKAGE}", TEAM)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(f"{PACKAGE}.", f"{TEAM}."))
    with (folder / TEAM / "data/sensors.py").open("a") as file:
        file.write(f"{SERVING}\nSensorData.serving = lambda self: SensorServing(self.metadata)\n")
    for package in (folder / TEAM, *(folder / TEAM).iterdir()):
        (package / "__init__.py").touch()
    # It stays: the parser lists all subclasses that this process knows, and imports them
    sys.path.append(str(folder))
    return folder


@pytest.fixture(scope="module")
def team(page) -> str:
    return TEAM


# AUROC of a class that few samples don't have
@pytest.mark.filterwarnings("ignore:No positive samples")
def test_a_data_module_of_ones_own(run, page):
    config = page / "configs/sensors.yaml"
    assert "nearest mean" in run("fit --config", config, "--trainer.accelerator=cpu").check().out
    results = json.loads((FOLDER / "metrics.json").read_text())
    assert results["test"]["test/acc"] > 0.9
    assert results["best"]["monitor"] == "val/auroc"
    assert json.loads((FOLDER / "baselines.json").read_text())["nearest mean"]["test/acc"] > 0.6
    network = yaml.safe_load((FOLDER / "config.yaml").read_text())["model"]["init_args"]["network"]
    assert network["init_args"] == {"width": 32, "channels": 3, "num_classes": 3}
    made_up = importlib.import_module(f"{TEAM}.data.sensors").made_up
    np.savetxt("recording.csv", made_up(3.0, 99), delimiter=",", header="x,y,z", comments="")
    run("predict --run sensors --input recording.csv --output activities.csv").check()
    rows = list(csv.DictReader(Path("activities.csv").read_text().splitlines()))
    assert [row["row"] for row in rows] == [str(32 * number) for number in range(30)]
    assert {row["prediction"] for row in rows} == {"running"}

    _, servable, _ = load_servable("sensors", [])
    serving = servable.serving
    [probabilities] = servable(*serving.example())
    answer = serving.answer({"probabilities": probabilities[:1].detach().numpy()}, {})
    assert answer["class"] in ("running", "still", "walking")

    folder = Path("recordings/running")  # one's own, without the other classes
    folder.mkdir(parents=True)
    for number in range(5):
        shutil.copy("recording.csv", folder / f"{number}.csv")
    line = "the checkpoint was trained with output_names ['running'"
    assert line in error(run("test --run sensors --data.path=recordings"))
