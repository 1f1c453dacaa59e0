"""A repository to look at."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


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
