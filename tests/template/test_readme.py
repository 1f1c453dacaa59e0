"""The commands of the README do what they say; they are read from it, so none can be forgotten."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from litlab.util.files import write_output
from tests.conftest import ROOT
from tests.template.overlays import SMALL
from tests.template.test_docs import read_commands

COMMANDS = read_commands((ROOT / "README.md").read_text())


def test_the_first_two_commands_are_the_ones_that_do_everything():
    assert COMMANDS[:2] == ["make fit", "make test"]
    targets = ("fit", "test", "test-gpu", "lint", "clean")
    done = subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "-m project fit --config configs/cifar.yaml" in done.stdout


@pytest.fixture
def clone(tmp_path, images, texts, series) -> Path:
    """What the README's commands expect around them: configs/, a folder of photos, tables of texts
    and of numbers.
    """
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    shutil.copytree(images, tmp_path / "photos")
    shutil.copy(texts, tmp_path / "reviews.csv")
    shutil.copy(series, tmp_path / "load.csv")
    houses = "".join(f"{number},{'yes' if number > 50 else 'no'}\n" for number in range(100))
    (tmp_path / "houses.csv").write_text(f"size,sold\n{houses}")
    return tmp_path


def test_commands_in_the_order_of_the_readme(clone, run, short, monkeypatch):
    """Fits are run where a later command needs them, and parsed elsewhere; what takes long is not
    begun.
    """
    monkeypatch.setenv("COLUMNS", "200")  # tables fold names where there is less room
    monkeypatch.setattr("litlab.commands.sweep.sweep.check_space", lambda spec: None)
    monkeypatch.setattr("litlab.commands.sweep.sweep.run_children", lambda *_: [0])
    monkeypatch.setattr("litlab.commands.export.export_run.export_run", lambda *_: None)
    monkeypatch.setattr("uvicorn.supervisors.Multiprocess.run", lambda supervisor: None)
    best = clone / "lightning_logs/sweeps/forecast/best.yaml"
    write_output(best, "model.network.hidden_size: 32\n")
    projects = [command for command in COMMANDS if command.startswith("python -m project")]
    verbs = "bench compare export fit new predict report runs serve sweep test validate".split()
    assert sorted({shlex.split(command)[3] for command in projects}) == verbs
    # Of the run that `make fit` leaves, which is below
    projects.sort(key=lambda command: " report " in command)
    for command in projects:
        verb, *arguments = shlex.split(command)[3:]
        # It writes into the root of the project; tests/template/test_new.py runs this command
        if verb == "new":
            assert command in (ROOT / "docs/experiments.md").read_text()
            continue
        if verb in ("fit", "bench") and "--config" in arguments:
            config = Path(arguments[1])
            is_needed = "--data.path" in arguments or arguments[1:] == ["configs/cifar.yaml"]
            if verb == "fit" and is_needed:  # later settings win
                limit = "--trainer.limit_train_batches=2"
                arguments += [*short(config), *SMALL.get(config.stem, []), limit]
            else:
                arguments = [*(word for word in arguments if word != "--check"), "--print_config"]
            verb = "fit"
        done = run(verb, *arguments)
        assert done.code == 0, f"{command}\n{done.err}"
        if verb in ("runs", "compare"):
            assert "cifar/version_0" in done.out
    assert list((clone / "lightning_logs/cifar").glob("*/report/index.html"))
    assert (clone / "predictions.csv").read_text().startswith("file,prediction,probability,")
    assert (clone / "classes.csv").read_text().count("\n") == 161
    assert (clone / "forecast.csv").read_text().startswith("date,load,load_lower,load_upper")


def test_every_command_is_known():
    known = (
        "make fit",
        "make test",
        "source .venv/bin/activate",
        "python -m project ",
        "tensorboard ",
    )
    assert all(command.startswith(known) for command in COMMANDS), COMMANDS
