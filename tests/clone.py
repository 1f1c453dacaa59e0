"""A copy of this repository with commands that run in it; not a test itself."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import OFFLINE, ROOT
from tests.processes import Python

NOT_COPIED = {".git", ".venv", "build", "data", "dist", "lightning_logs"}  # of the root
WHO = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")


class Clone:
    """A repository with a package of experiments, which `call` runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def shell(self, script: str) -> str:
        settings = os.environ | dict.fromkeys(WHO, "ann") | {"GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(
            ["bash", "-euc", script], cwd=self.root, env=settings, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def commit(self) -> None:
        self.shell("git add --all && git commit --quiet --message changes")

    def call(self, line: str, code: int = 0) -> str:
        """``python -m LINE``; return what it prints, to stderr where it is refused."""
        search = f"{self.root}/src{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        variables = {**OFFLINE, "PYTHONPATH": search}
        process = Python("-m", *line.split(), cwd=self.root, environment=variables)
        out, err = process.communicate()
        assert process.wait() == code, out + err
        return err if code else out

    def replace(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


def clone_tree(root: Path) -> Clone:
    """Copy this repository as it is, without its history."""
    shutil.copytree(ROOT, root, ignore=not_of_the_tree, dirs_exist_ok=True)
    clone = Clone(root)
    clone.shell("git init --quiet --initial-branch main")
    clone.commit()
    return clone


def not_of_the_tree(folder: str, names: list[str]) -> set[str]:
    """Names in a folder that no test needs, and that may be large."""
    made = {name for name in names if name.endswith((".egg-info", "_cache", "__pycache__"))}
    return made | (NOT_COPIED & {*names} if Path(folder) == ROOT else set())
