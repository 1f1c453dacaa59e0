"""The command in this process; its fits are processes of their own that have done the imports."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Outcome
from tests.litlab.conftest import CONFIGS
from tests.litlab.seeds.trouble import COMMAND
from tests.processes import Python


class Fit(Python):
    """``python -m auks ARGUMENTS``, whose output becomes that of this process when it ends, unless it is read."""

    def __init__(self, *arguments: str, stdout: object = None) -> None:
        super().__init__("-m", "auks", *arguments, cwd=Path.cwd())
        self.read = stdout is not None

    def wait(self, timeout: float = 240) -> int:
        code = super().wait(timeout)
        out, err = self.printed()
        if not self.read:
            sys.stdout.write(out)
        sys.stderr.write(err)
        return code


@pytest.fixture
def quick_fits(monkeypatch) -> None:
    """Lets the fits of a command start at once."""
    monkeypatch.setattr("litlab.seeds.fits.start", Fit)


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Lets Ctrl-C come through: pytest-xdist ignores it in its workers."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def fit(_ctrl_c, run, tmp_path, series, monkeypatch) -> Callable[..., Outcome]:
    """Runs `fit` of two short epochs of the series experiment, in which `trouble` may befall a seed."""
    monkeypatch.setenv(COMMAND, str(os.getpid()))
    monkeypatch.setenv("COLUMNS", "200")  # tables fold names where there is less room
    callbacks = [{"class_path": "tests.litlab.seeds.trouble.Trouble", "init_args": {"file": "trouble.json"}}]
    settings = [
        "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.split=[0.6, 0.2, 0.2]",
        "--trainer.max_epochs=2", "--trainer.limit_train_batches=3", "--trainer.log_every_n_steps=1",
        "--trainer.accelerator=cpu", f"--trainer.callbacks={json.dumps(callbacks)}",
    ]  # fmt: skip
    trouble()
    return lambda *arguments: run("fit", "--config", CONFIGS / "series.yaml", *settings, *arguments)


def trouble(**kinds: str) -> None:
    """From now on that happens to the fits of some seeds: ``seed_1="raises"``."""
    by_seed = {name.removeprefix("seed_"): kind for name, kind in kinds.items()}
    Path("trouble.json").write_text(json.dumps(by_seed))


@pytest.fixture
def refused(run) -> Callable[..., str]:
    """The one line with which `fit` is refused, and nothing is left behind."""

    def refuse(*arguments: object) -> str:
        done = run("fit", *arguments)
        assert done.code == 2, done
        assert done.out == ""
        assert done.err.count("\n") == 1, done.err
        assert not Path("lightning_logs").exists()
        return done.err.removeprefix("error: ").removesuffix("\n")

    return refuse
