"""``new``: what it writes is in good style, passes its test and trains at once, whatever the kind."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import litlab
from litlab.commands.scaffold.new import KINDS
from tests.conftest import command
from tests.litlab.commands.scaffold.tiny_project import plant
from tests.processes import Python

SOURCES = Path(litlab.__file__).parents[1]
EXPERIMENTS = {f"{data}_{kind}": kind for kind in KINDS for data in ("own", "only")}
# Forked from a process that has imported `tests` of this repository.
PYTEST = """
import sys
import pytest
for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
    del sys.modules[name]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--assert=plain", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def team() -> str:
    return "zoo"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory) -> Path:
    """A project with experiments of all kinds, with data of their own and without."""
    root = plant(tmp_path_factory.mktemp("zoo"), "zoo")
    sys.path.append(str(root / "src"))  # it stays: the parser lists all subclasses that this process knows
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name, kind in EXPERIMENTS.items():
            flags = ["--model-only"] if name.startswith("only") else []
            assert command(patch, "new", name, "--like", kind, *flags, package="zoo") == 0
    importlib.invalidate_caches()
    return root


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_trains_at_once(run, zoo, tmp_path, name):
    config = zoo / f"configs/{name}.yaml"
    smoke = ("--config", zoo / "configs/with/smoke.yaml", "--trainer.accelerator=cpu")
    done = run("fit", "--config", config, *smoke)
    assert done.code == 0, done.err
    assert "warning" not in done.err
    metric = yaml.safe_load(config.read_text())["checkpoint"]["monitor"].replace("val/", "test/")
    assert metric in done.out


def test_its_test_passes(zoo, tmp_path):
    names = [name for name, kind in EXPERIMENTS.items() if name.startswith("own") or kind == "text"]
    script = tmp_path / "run.py"
    script.write_text(PYTEST)
    path = os.pathsep.join([str(zoo / "src"), str(SOURCES)])
    files = [f"tests/zoo/test_{name}.py" for name in names]
    process = Python(script, *files, cwd=zoo, environment={"PYTHONPATH": path}, merge=True)
    printed, _ = process.communicate()
    assert process.wait() == 0, printed
    assert f"{4 * len(names)} passed" in printed


def test_style(zoo):
    beside = "lint.isort.known-first-party=['litlab']"  # as it is in a project that has litlab's sources
    for verb in (["check", "--config", beside], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *verb, "--no-cache", "src", "tests/zoo"]
        done = subprocess.run(ruff, cwd=zoo, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
