"""A repository to look at, and what tests look for."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.runs.folder import RunFolder
from tests.conftest import Outcome


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
        identity = "git -c user.name=x -c user.email=x@y.org -c commit.gpgsign=false".split()
        return subprocess.run(
            [*identity, *arguments], cwd=root, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    return root, git


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
