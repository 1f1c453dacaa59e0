"""A fit that reports to a worker, which here is the test."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from litlab.runs.folder import RunFolder
from litlab.util.variables import TRIAL_ADDRESS
from tests.litlab.conftest import CONFIGS
from tests.processes import Python, ranks


@pytest.fixture
def listener(tmp_path, monkeypatch) -> Iterator[socket.socket]:
    monkeypatch.setenv(TRIAL_ADDRESS, str(tmp_path / "worker"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.environ[TRIAL_ADDRESS])
        listening.listen()
        listening.settimeout(200)
        yield listening


def fit(tmp_path: Path, short, *arguments: str, **environment: object) -> Python:
    config = CONFIGS / "series.yaml"
    brief = ["--trainer.max_epochs=9", "--trainer.callbacks=[]", "--test_after_fit=false", *arguments]
    command = ["-m", "acme", "fit", "--config", config, *short(config), *brief]
    return Python(*command, cwd=tmp_path, environment=environment, merge=True)


def test_pruned_under_ddp(tmp_path, short, listener):
    """The first rank alone reports; all ranks stop in order after the validation that says so."""
    ddp = "--trainer.strategy=ddp", "--trainer.devices=2"
    process, second = (fit(tmp_path, short, *ddp, **of_rank) for of_rank in ranks(2))
    connected = listener.accept()[0]
    heard = []
    with connected, connected.makefile("r") as reports:
        for line in reports:
            heard.append(json.loads(line))
            if "metrics" in heard[-1]:
                connected.sendall(b"stop\n" if heard[-1]["epoch"] == 1 else b"go on\n")
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, second.wait()) == (0, 0), out
    listener.settimeout(0)
    with pytest.raises(BlockingIOError):
        listener.accept()
    run = RunFolder(tmp_path / heard[0]["run"])
    assert run.state()["status"] == "finished"
    assert (run.checkpoints / "last.ckpt").is_file()
    validations = [report for report in heard if "metrics" in report]
    assert [report["epoch"] for report in validations] == [0, 1]
    assert validations[0]["step"] < validations[1]["step"]
    assert validations[1]["metrics"]["val/mse"] > 0


def test_worker_is_gone(tmp_path, short, listener):
    """The fit ends before the checkpoint of a validation that was not heard, so that it is repeated when resumed."""
    process = fit(tmp_path, short)
    connected = listener.accept()[0]
    with connected, connected.makefile("r") as reports:
        heard = [json.loads(reports.readline())]
        while len([report for report in heard if "metrics" in report]) < 2:
            heard.append(json.loads(reports.readline()))
            if "metrics" in heard[-1] and heard[-1]["epoch"] == 0:
                connected.sendall(b"go on\n")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 143, out
    run = RunFolder(tmp_path / heard[0]["run"])
    assert run.state()["status"] == "interrupted"
    first, second = [report["step"] for report in heard if "metrics" in report]
    saved = torch.load(run.checkpoints / "last.ckpt", map_location="cpu", weights_only=True)
    assert saved["global_step"] == first < second
