"""What all tests share: tiny images, and the command line in a temporary folder."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch  # noqa: F401 - its log handlers must exist before the first test
import numpy as np
import pytest
import torch
from PIL import Image

from project.__main__ import main

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"


@dataclass
class Outcome:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> Path:
    """A folder of PNG images: 10 classes, 16 / 4 / 5 each for train, val and test, told apart by their brightness."""
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 4), ("test", 5)):
        for label in range(10):
            folder = root / split / f"class_{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.normal(20 + 23 * label, 12, (32, 32, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Callable[..., Outcome]:
    """Runs ``python -m project ARGUMENTS`` in this process and an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run_here(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["project", *map(str, arguments)])
        for name in ("lightning.pytorch", "lightning.fabric"):
            for handler in logging.getLogger(name).handlers:
                if type(handler) is logging.StreamHandler:  # bound to what stderr was when Lightning was imported
                    monkeypatch.setattr(handler, "stream", sys.stderr)
        try:
            code = main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run_here


@pytest.fixture
def cifar(run, images) -> Callable[..., Outcome]:
    """Runs a verb of the CIFAR experiment on the tiny images, short enough for a test."""

    def run_cifar(verb: str, *arguments: object) -> Outcome:
        return run(
            verb, "--config", CONFIGS / "cifar.yaml", "--data.dataset", "folder", "--data.path", images,
            "--data.batch_size", 40, "--model.width", 16, "--trainer.max_epochs", 2, "--trainer.accelerator", "cpu",
            "--trainer.log_every_n_steps", 1, *arguments,
        )  # fmt: skip

    return run_cifar


def shell(*arguments: object, cwd: Path, seconds: int = 240) -> Outcome:
    """Runs ``python -m project ARGUMENTS`` as a process of its own, without network."""
    nowhere = "http://127.0.0.1:9"
    environment = {
        **os.environ,
        "http_proxy": nowhere,
        "https_proxy": nowhere,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    command = [sys.executable, "-m", "project", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds)
    return Outcome(done.returncode, done.stdout, done.stderr)
