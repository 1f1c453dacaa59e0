"""``new``: what it writes is in good style, passes its test and trains at once, whatever the
kind.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import litlab
from litlab.commands.scaffold.new import KINDS
from litlab.util.files import write_text
from tests.conftest import command
from tests.litlab.commands.scaffold.tiny_project import list_contents, plant
from tests.processes import start_pytest

SOURCES = Path(litlab.__file__).parents[1]


@pytest.fixture(scope="module")
def team() -> str:
    return "zoo"


@pytest.fixture(scope="session")  # once in a process: its package is imported from here
def zoo(tmp_path_factory) -> Path:
    """A project with experiments of all kinds, with data of their own and without."""
    root = plant(tmp_path_factory.mktemp("zoo"), "zoo")
    # It stays: the parser lists all subclasses that this process knows
    sys.path.append(str(root / "src"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for kind in KINDS:
            for line in (f"own_{kind} --like {kind}", f"only_{kind} --like {kind} --model-only"):
                assert command(patch, f"new {line}", package="zoo") == 0
    importlib.invalidate_caches()
    return root


@pytest.mark.parametrize("name", [f"only_{kind}" for kind in KINDS])
def test_it_trains_at_once(run, zoo, name):
    config = zoo / f"configs/{name}.yaml"
    flags = ["--config", zoo / "configs/with/smoke.yaml", "--trainer.accelerator=cpu"]
    done = run("fit --config", config, *flags).check()
    assert "warning" not in done.err
    metric = yaml.safe_load(config.read_text())["checkpoint"]["monitor"].replace("val/", "test/")
    assert metric in done.out


def test_its_test_passes_and_its_style_is_good(zoo):
    """All of them are imported, and those of one kind run."""
    path = os.pathsep.join([str(zoo / "src"), str(SOURCES)])
    process = start_pytest(zoo, "tests/zoo", "-k", "own_linear", path=path)
    assert process.wait() == 0, process.printed()
    assert "4 passed" in process.printed()[0]

    # As it is in a project that has litlab's sources
    beside = "lint.isort.known-first-party=['litlab']"
    for verb in (["check", "--config", beside], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *verb, "--no-cache", "src", "tests/zoo"]
        done = subprocess.run(ruff, cwd=zoo, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_can_not_be_is_one_line_and_writes_nothing(run, zoo, monkeypatch):
    monkeypatch.chdir(zoo)
    (zoo / "configs/taken.yaml").touch()
    write_text(zoo / "src/examples/toys/data.py", "class BlocksData:\n")
    before = list_contents(zoo)
    for arguments, says in {
        "my-net": "'my-net' is not a valid name; use lower-case letters, digits and _",
        "class": "class has another meaning",
        "last": "last has another meaning",
        "exception": "a class Exception exists already",
        "own_linear": "a class OwnLinear exists already",
        "blocks": "a class BlocksData exists already",
        "taken": "configs/taken.yaml exists already",
        "mine --like gan": "argument --like: invalid choice: 'gan'",
    }.items():
        done = run("new --like cifar", *arguments.split())
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert done.err.startswith("error: new: ")
        assert says in done.err
    assert list_contents(zoo) == before
