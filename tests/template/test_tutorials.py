"""A tutorial works: all its files are written and all its commands run, in their order."""

import json
from pathlib import Path

import pytest

from tests.conftest import Outcome
from tests.processes import Python
from tests.template.tutorial import copy_project, follow, run_in_copy

BRIEF = ["--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--trainer.log_every_n_steps=1"]
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


@pytest.fixture
def copy(tmp_path, monkeypatch) -> Path:
    """A copy of the project, as the working directory."""
    copy_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_own_data(copy):
    def stopped(_: str) -> Outcome:
        (copy / "stopped.py").write_text(STOPPED)
        fit = ["fit", "--config", "configs/meters.yaml", *BRIEF, "--trainer.max_epochs=9"]
        process = Python("stopped.py", *fit, cwd=copy, environment={"PYTHONPATH": copy / "src"})
        assert process.wait() == 130, process.printed()
        return Outcome(0, *process.printed())

    def verb(words: list[str]) -> Outcome:
        short = BRIEF if words[0] == "fit" and "--config" in words else []  # later settings win
        whole = ["--trainer.max_epochs=9"] if "meters_whole" in words and short else []
        return run_in_copy([*words, *short, *whole])

    others = {"python -m project fit --config configs/meters.yaml --trainer.max_epochs 200": stopped}
    follow("own_data.md", verb, others)
    stopped_run, whole = (
        json.loads((RUN / name / "metrics.json").read_text()) for name in ("meters/version_1", "meters_whole/version_0")
    )
    assert stopped_run["test"] == whole["test"]
    assert stopped_run["best"]["value"] == whole["best"]["value"]
