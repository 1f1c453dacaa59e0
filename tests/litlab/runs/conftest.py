"""A repository to look at, and what tests look for."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.runs.folder import RunFolder
from litlab.util.files import write_text
from tests.clone import Clone
from tests.conftest import Outcome


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Clone:
    """A git repository with one committed module."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    code = Clone(tmp_path / "code")
    write_text(code.root / "src/model.py", "width = 1\n")
    write_text(code.root / ".gitignore", "data/\n")
    code.shell("git init --quiet")
    code.commit()
    return code


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
