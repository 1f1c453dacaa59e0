"""``rename``, on a copy of this repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import OFFLINE, PACKAGE, ROOT
from tests.litlab.commands.scaffold.tiny_project import list_contents
from tests.processes import Python

# Files beside those that are there, before and after: what is the package, and what is the word.
ADDED = {
    "notes.md": "`python -m PACKAGE fit` of our PACKAGE, in `src/PACKAGE/` and `PACKAGE.models.mine`.\r\n",
    "launch.json": '{"module": "PACKAGE", "args": ["-m", "PACKAGE"]}\n',
    "fit.sh": "#!/bin/sh\nexec python -m PACKAGE fit\n",
    "weights.bin": "\0 import PACKAGE\n\udcff",
}
RENAMED = {
    "notes.md": "`python -m acme fit` of our PACKAGE, in `src/acme/` and `acme.models.mine`.\r\n",
    "launch.json": '{"module": "acme", "args": ["-m", "acme"]}\n',
    "fit.sh": "#!/bin/sh\nexec python -m acme fit\n",
    "weights.bin": ADDED["weights.bin"],
}


def encode(text: str) -> bytes:
    return text.replace("PACKAGE", PACKAGE).encode(errors="surrogateescape")


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True)


def rename(root: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Rename in a process of its own, as the package is under another name afterwards."""
    path = os.pathsep.join([str(root / "src"), os.environ["PYTHONPATH"]])
    variables = {**os.environ, **OFFLINE, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", PACKAGE, "rename", name]
    return subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True)


@pytest.fixture
def repository(tmp_path) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip(f"{ROOT} is no git repository")
    git(tmp_path, "clone", "--quiet", str(ROOT), "root")
    root = tmp_path / "root"
    shutil.copytree(ROOT / "src/litlab", root / "src/litlab", dirs_exist_ok=True)  # as it is here
    for name, text in ADDED.items():
        (root / name).write_bytes(encode(text))
    (root / "fit.sh").chmod(0o755)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "x")
    return root


def test_everything_is_renamed_and_runs(repository):
    """Nothing says what it was called; its style is as good, and configs with classes of its own parse."""
    before = list_contents(repository)
    done = rename(repository, "acme")
    assert (done.returncode, done.stderr) == (0, "")
    after = list_contents(repository)
    assert {restore(name) for name in after} == before.keys()
    assert {name: after[name] for name in RENAMED} == {name: encode(text) for name, text in RENAMED.items()}
    assert os.access(repository / "fit.sh", os.X_OK)

    left = rf"-m {PACKAGE}\b|src/{PACKAGE}\b|\bfrom {PACKAGE}[. ]|\b{PACKAGE}\.(networks|models|data|callbacks)\b"
    grep = ["git", "grep", "-nIE", "-e", left, "--", ".", ":!src/litlab", ":!tests/litlab"]
    assert subprocess.run(grep, cwd=repository).returncode == 1
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "src", "tests"]
    assert subprocess.run(ruff, cwd=repository).returncode == 0
    config = min(repository.glob("configs/*.yaml"))
    words = ("-m", "acme", "fit", "--config", config, "--print_config")
    process = Python(*words, cwd=repository, environment={"PYTHONPATH": repository / "src"})
    assert process.wait() == 0, process.printed()


def restore(path: str) -> str:
    return path.replace("src/acme/", f"src/{PACKAGE}/").replace("tests/acme/", f"tests/{PACKAGE}/")


def test_what_can_not_be_is_one_line_and_changes_nothing(repository):
    before = list_contents(repository)
    for name, says in {
        "our-studio": "'our-studio' can't be a package",
        "json": "there is something of the name json already",
        "studio": "there are uncommitted changes; commit them first",
    }.items():
        if name == "studio":
            (repository / "new.py").touch()
        done = rename(repository, name)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith(f"error: rename: {says}"), done.stderr
    (repository / "new.py").unlink()
    assert list_contents(repository) == before
