"""``new``: what it writes is in good style, passes its test and trains at once, whatever the kind."""

import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import litlab
from litlab.commands.scaffold.new import KINDS
from tests.conftest import command
from tests.litlab.commands.scaffold.tiny_project import plant
from tests.litlab.conftest import BRIEF
from tests.processes import Python

FIRST = "# yaml-language-server: $schema=../.vscode/schemas/fit.json"
SOURCES = Path(litlab.__file__).parents[1]
EXPERIMENTS = {f"{data}_{kind}": kind for kind in KINDS for data in ("own", "only")}
# Names as long as may be, and as short: no line is too long, and none is folded that needn't be.
LONG = {f"{kind:z<60}": kind for kind in KINDS} | {f"{kind[:2]}": kind for kind in KINDS}
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
    assert (tmp_path / "lightning_logs/smoke/version_0/checkpoints/last.ckpt").is_file()


def test_its_test_passes(zoo, tmp_path):
    """What --model-only changes is the config alone, and test_it_trains_at_once trains with each."""
    names = [name for name, kind in EXPERIMENTS.items() if name.startswith("own") or kind == "text"]
    script = tmp_path / "run.py"
    script.write_text(PYTEST)
    path = os.pathsep.join([str(zoo / "src"), str(SOURCES)])
    files = [f"tests/zoo/test_{name}.py" for name in names]
    process = Python(script, *files, cwd=zoo, environment={"PYTHONPATH": path}, merge=True)
    printed, _ = process.communicate()
    assert process.wait() == 0, printed
    assert f"{4 * len(names)} passed" in printed


def test_its_data_is_small_in_other_tests(run, zoo, request):
    """What tests/zoo/short says of a DataModule: an epoch of the tiny data that the tests share."""
    for kind in ("cifar", "text", "forecast"):
        short = runpy.run_path(str(zoo / f"tests/zoo/short/Own{kind.capitalize()}Data.py"))
        flags = [*short["settings"](request.getfixturevalue), *BRIEF]
        done = run("fit", "--config", zoo / f"configs/own_{kind}.yaml", *flags)
        assert done.code == 0, done.err
        assert "GENERATED" not in done.out + done.err


@pytest.mark.parametrize("flags", [(), ("--model-only",)], ids=["own", "only"])
def test_style_whatever_the_name(tmp_path, monkeypatch, flags):
    root = plant(tmp_path / "root", "pen")
    monkeypatch.syspath_prepend(str(root / "src"))
    monkeypatch.chdir(root)
    for name, kind in LONG.items():
        assert command(monkeypatch, "new", name, "--like", kind, *flags, package="pen") == 0
    beside = "lint.isort.known-first-party=['litlab']"  # as it is in a project that has litlab's sources
    for verb in (["check", "--config", beside], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *verb, "--no-cache", "src", "tests/pen"]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_configs_say_what_they_are_and_how_they_are_run(zoo):
    for name in EXPERIMENTS:
        config = zoo / f"configs/{name}.yaml"
        lines = config.read_text().splitlines()
        assert lines[0] == FIRST
        assert lines[1].startswith("# ")
        assert lines[2] == f"#   python -m zoo fit --config configs/{name}.yaml"
        assert max(map(len, lines)) <= 120
        said = yaml.safe_load(config.read_text())
        assert said["experiment"] == name
        own = f"Own{EXPERIMENTS[name].capitalize()}Data"
        assert said["data"]["class_path"] == (own if name.startswith("own") else KINDS[EXPERIMENTS[name]])


def test_plain_lightning_uses_nothing_of_litlab(zoo):
    for file in ("models/own_linear.py", "data/own_linear.py"):
        assert "litlab" not in (zoo / "src/zoo" / file).read_text()
