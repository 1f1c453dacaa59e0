"""A repository to look at, and a run to continue and evaluate."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.runs.folder import RunFolder
from tests.conftest import Outcome, command
from tests.litlab.conftest import CONFIGS

CONFIG = CONFIGS / "series.yaml"  # of the run


@pytest.fixture
def repository(tmp_path, monkeypatch) -> tuple[Path, Callable[..., str]]:
    """A git repository with one committed module, and a function that runs git in it."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    root = tmp_path / "code"
    (root / "src").mkdir(parents=True)
    (root / "src" / "model.py").write_text("width = 1\n")
    (root / ".gitignore").write_text("data/\n")

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    return root, git


@pytest.fixture(scope="session")
def settings(series) -> list[str]:
    """Flags of the run."""
    return [
        "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.context_length=48",
        "--data.horizon=24", "--data.batch_size=48", "--data.val_fraction=0.2", "--trainer.accelerator=cpu",
        "--model.hidden_size=8", "--trainer.log_every_n_steps=1", "--trainer.callbacks=[]",
    ]  # fmt: skip


@pytest.fixture(scope="session")
def fitted(settings, tmp_path_factory) -> Path:
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.set_num_threads(1)
        name = "--checkpoint.filename={epoch}-{val/mse:.3f}"
        assert command(patch, "fit", "--config", CONFIG, *settings, "--trainer.max_epochs=2", name, package="auks") == 0
    return folder / "lightning_logs"


@pytest.fixture
def folder(fitted, tmp_path) -> RunFolder:
    """A copy of that run, in the folder that commands run in."""
    shutil.copytree(fitted, tmp_path / "lightning_logs")
    return RunFolder(tmp_path / "lightning_logs/series/version_0")


def error(done: Outcome) -> str:
    """The line with which a command was refused."""
    assert done.code == 2, done.out + done.err
    assert "Traceback" not in done.err
    return next(line for line in done.err.splitlines() if line.startswith("error: "))


def scalars(run: RunFolder, name: str) -> list[tuple[int, float]]:
    """Steps and values that TensorBoard shows."""
    events = EventAccumulator(str(run.path))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]
