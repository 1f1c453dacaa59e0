"""``rename``: on a small repository whose package is called `yarn`, and on a copy of this one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import OFFLINE, PACKAGE, ROOT
from tests.litlab.commands.scaffold.tiny_project import list_contents
from tests.processes import Python

MAIN = """\
from litlab.cli import main

if __name__ == "__main__":
    main(package=__package__)
"""
TEST = """\
from tests.yarn.helper import Helper
from yarn.models.mine import Mine

BOTH = Mine, Helper
"""
FILES = {
    "README.md": "# Yarn\n\n`python -m yarn fit` is our yarn, in `src/yarn/` and `yarn.models.mine`.\n",
    "configs/mine.yaml": "# python -m yarn fit --config configs/mine.yaml\nmodel: {body: yarn.models.mine.Mine}\n",
    "scripts/fit.sh": "#!/bin/sh\nexec python -m yarn fit\n",
    "notebook.ipynb": '{"cells": [{"source": ["from yarn.models.mine import Mine\\n"]}]}\r\n',
    "launch.json": '{"module": "yarn", "args": ["-m", "yarn"]}\n',
    "src/yarn/__init__.py": '"""Ours."""\n\nfrom yarn.models.mine import Mine\n\n__all__ = ["Mine"]\n',
    "src/yarn/__main__.py": MAIN,
    "src/yarn/models/mine.py": "class Mine:\n    pass\n",
    "tests/__init__.py": "",
    "tests/yarn/helper.py": "class Helper:\n    pass\n",
    "tests/yarn/test_mine.py": TEST,
}
UNCHANGED = {
    "image: yarn": "image: yarn\nour yarn from wool\n",
    "weights.bin": "\0 import yarn\n\udcff",
}
GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def git(root: Path, *arguments: str) -> str:
    return subprocess.run([*GIT, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "x")


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS`` as a process of its own, as the package is under another name afterwards."""
    path = os.pathsep.join([str(root / "src"), os.environ["PYTHONPATH"]])
    variables = {**os.environ, **OFFLINE, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=root, env=variables, capture_output=True, text=True)


@pytest.fixture
def repository(tmp_path) -> Path:
    root = tmp_path / "root"
    for name, text in (FILES | UNCHANGED).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode(errors="surrogateescape"))
    (root / "scripts/fit.sh").chmod(0o755)
    git(root, "init", "--quiet")
    commit(root)
    return root


def test_everything_is_renamed_and_runs(repository):
    before = list_contents(repository)
    done = run(repository, "-m", "yarn", "rename", "acme")
    assert (done.returncode, done.stderr) == (0, "")
    after = list_contents(repository)
    assert {name.replace("/acme", "/yarn") for name in after} == set(before)
    for name in UNCHANGED:
        assert after[name] == before[name]
    for name in FILES.keys() - {"README.md", "tests/yarn/test_mine.py"}:
        assert after[name.replace("/yarn", "/acme")].decode() == FILES[name].replace("yarn", "acme"), name
    readme = (repository / "README.md").read_text()
    assert readme == "# Yarn\n\n`python -m acme fit` is our yarn, in `src/acme/` and `acme.models.mine`.\n"
    assert (repository / "tests/acme/test_mine.py").read_text().startswith("from acme.models.mine import Mine\nfrom ")
    assert os.access(repository / "scripts/fit.sh", os.X_OK)
    assert run(repository, "-c", "import tests.acme.test_mine").returncode == 0


def test_what_can_not_be_is_one_line_and_changes_nothing(repository):
    before = list_contents(repository)
    for name, says in {
        "our-studio": "'our-studio' can't be a package",
        "json": "there is something of the name json already",
        "studio": "there are uncommitted changes; commit them first",
    }.items():
        if name == "studio":
            (repository / "new.py").touch()
        done = run(repository, "-m", "yarn", "rename", name)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith(f"error: rename: {says}"), done.stderr
    (repository / "new.py").unlink()
    assert list_contents(repository) == before


def test_this_repository_renamed(tmp_path):
    """It says nowhere what it was called; its style is as good, and configs with classes of its own parse."""
    if not (ROOT / ".git").exists():
        pytest.skip(f"{ROOT} is no git repository")
    git(tmp_path, "clone", "--quiet", str(ROOT), "root")
    root = tmp_path / "root"
    done = run(root, "-m", PACKAGE, "rename", "acme")
    assert done.returncode == 0, done.stderr
    left = rf"-m {PACKAGE}\b|src/{PACKAGE}\b|\bfrom {PACKAGE}[. ]|\b{PACKAGE}\.(networks|models|data|callbacks)\b"
    found = subprocess.run(["git", "grep", "-nE", "-e", left, "--", ".", ":!src/litlab", ":!tests/litlab"], cwd=root)
    assert found.returncode == 1
    ruff = subprocess.run([sys.executable, "-m", "ruff", "check", "--no-cache", "src", "tests"], cwd=root)
    assert ruff.returncode == 0
    config = min(root.glob("configs/*.yaml"))
    words = ("-m", "acme", "fit", "--config", config, "--print_config")
    process = Python(*words, cwd=root, environment={"PYTHONPATH": root / "src"})
    _, printed = process.communicate()
    assert process.wait() == 0, printed
