"""The tutorials in docs/tutorials/ work: all their files are written and all their commands run, in their order."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, Outcome
from tests.processes import Python
from tests.template.tutorial import copy_project, follow, run_in_copy

BRIEF = ["--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--trainer.log_every_n_steps=1"]
SMALL = {
    "cifar": ["--model.width=16"],
    "text": ["--model.embed_dim=16"],
    "forecast": ["--model.hidden_size=8"],
    "tabular": ["--model.network.hidden_sizes=[16]"],
}
RUN = Path("lightning_logs")
# Ctrl-C in the third epoch.
STOPPED = """
import os
import runpy
import signal
import sys
from lightning.pytorch import LightningModule

def stop(module):
    if module.current_epoch == 2:
        os.kill(os.getpid(), signal.SIGINT)

LightningModule.on_train_epoch_start = stop
sys.argv[0] = "project"
runpy.run_module("project", run_name="__main__", alter_sys=True)
"""


def brief(words: list[str]) -> list[str]:
    """A command, and flags that make a training short; later settings win."""
    if words[0] != "fit" or "--config" not in words:
        return words
    name = Path(words[words.index("--config") + 1]).stem
    overlaid = any("profile.yaml" in word for word in words)  # which says itself how short it is
    return [*words, *(BRIEF[:1] if overlaid else BRIEF), *SMALL.get(name, [])]


@pytest.fixture
def here(run, tmp_path) -> Callable[[list[str]], Outcome]:
    """Runs a short command in this process, in a folder with the configs."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    return lambda words: run(*brief(words))


@pytest.fixture
def copy(tmp_path, monkeypatch) -> Path:
    """A copy of the project, as the working directory."""
    copy_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_first_hour(here):
    for _ in follow("first_hour.md", here):
        pass
    assert Path("predictions.csv").read_text().count("\n") == 31
    assert (RUN / "cifar/version_0/confusion_matrix.png").is_file()
    assert (RUN / "cifar/version_0/report/index.html").is_file()


def test_own_data(copy):
    def stopped(_: str) -> Outcome:
        (copy / "stopped.py").write_text(STOPPED)
        fit = ["fit", "--config", "configs/meters.yaml", *BRIEF, "--trainer.max_epochs=9"]
        process = Python("stopped.py", *fit, cwd=copy, environment={"PYTHONPATH": copy / "src"})
        assert process.wait() == 130, process.printed()
        return Outcome(0, *process.printed())

    def verb(words: list[str]) -> Outcome:
        whole = words[0] == "fit" and "meters_whole" in words
        return run_in_copy([*brief(words), *(["--trainer.max_epochs=9"] if whole else [])])

    others = {"python -m project fit --config configs/meters.yaml --trainer.max_epochs 200": stopped}
    for _ in follow("own_data.md", verb, others):
        pass
    stopped_run, whole = (
        json.loads((RUN / name / "metrics.json").read_text()) for name in ("meters/version_1", "meters_whole/version_0")
    )
    assert stopped_run["test"] == whole["test"]
    assert stopped_run["best"]["value"] == whole["best"]["value"]
