"""A fit that reports to a sweep, which here is the test."""

import os
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from litlab.commands.sweep.processes import Stop, run, run_project
from litlab.commands.sweep.variables import TRIAL
from litlab.runs.folder import RunFolder
from tests.litlab.conftest import CONFIGS
from tests.processes import Python, ranks


@pytest.fixture
def arguments(tmp_path, short, monkeypatch) -> Callable[..., list[str]]:
    """The command line of a fit in an empty folder."""
    monkeypatch.chdir(tmp_path)
    config = CONFIGS / "series.yaml"
    brief = ["--trainer.max_epochs=9", "--trainer.callbacks=[]", "--test_after_fit=false"]
    return lambda *more: ["fit", f"--config={config}", *short(config), *brief, *more]


def test_pruned_under_ddp(tmp_path, arguments):
    """The first rank alone reports; all ranks stop in order after the validation that says so."""
    ddp = arguments("--trainer.strategy=ddp", "--trainer.devices=2")
    first, second = ({**of_rank, "OMP_NUM_THREADS": "1"} for of_rank in ranks(2))
    other = Python("-m", "auks", *ddp, cwd=tmp_path, environment={TRIAL: "1", **second})
    reports: list[dict[str, Any]] = []

    def hear(report: dict[str, Any]) -> str | None:
        reports.append(report)
        return None if "metrics" not in report else "stop" if report["epoch"] == 1 else "continue"

    environment = {name: str(value) for name, value in first.items()}
    log = tmp_path / "log"
    status = run(run_project, "auks", ddp, log, environment, hear=hear, stop=Stop(), stall_seconds=200)
    assert (status, other.wait()) == (0, 0), log.read_text()
    folder = RunFolder(tmp_path / reports[0]["run"])
    assert folder.state()["status"] == "finished"
    assert (folder.checkpoints / "last.ckpt").is_file()
    validations = [report for report in reports if "metrics" in report]
    assert [report["epoch"] for report in validations] == [0, 1]
    assert validations[0]["step"] < validations[1]["step"]
    assert validations[1]["metrics"]["val/mse"] > 0


def test_sweep_is_gone(tmp_path, arguments):
    """The fit ends before the checkpoint of a validation that was not heard, so that it is repeated when resumed."""
    forks = get_context("forkserver")
    here, there = forks.Pipe()
    log = tmp_path / "log"
    process = forks.Process(target=_run, args=(there, arguments(), log))
    process.start()
    there.close()
    reports: list[dict[str, Any]] = []
    while len([report for report in reports if "metrics" in report]) < 2:
        reports.append(here.recv())
        if "metrics" in reports[-1] and reports[-1]["epoch"] == 0:
            here.send("continue")
    here.close()
    process.join(120)
    assert process.exitcode == 143, log.read_text()
    folder = RunFolder(tmp_path / reports[0]["run"])
    assert folder.state()["status"] == "interrupted"
    first, second = [report["step"] for report in reports if "metrics" in report]
    saved = torch.load(folder.checkpoints / "last.ckpt", map_location="cpu", weights_only=True)
    assert saved["global_step"] == first < second


def _run(connection: Any, arguments: list[str], log: Path) -> None:
    os.setsid()
    run_project(connection, "auks", arguments, log, {"OMP_NUM_THREADS": "1"})
