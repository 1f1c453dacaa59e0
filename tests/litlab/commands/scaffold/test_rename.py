"""``rename``, on a copy of this repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import OFFLINE, PACKAGE, ROOT
from tests.litlab.commands.scaffold.tiny_project import list_contents
from tests.processes import Python, start_pytest

NEW = "acme" if PACKAGE != "acme" else "studio"
# Files beside those that are there, as they are renamed: before, NEW is PACKAGE, too.
ADDED = {
    "notes.md": "`python -m NEW fit` of our PACKAGE, in `src/NEW/` and `NEW.models.mine`.\r\n",
    "lines.md": "Run `python -m\nNEW`, `import NEW`, but `from common import PACKAGE`.\n",
    "launch.json": '{"module": "NEW", "args": ["-m", "NEW"], "greet": "NEW.commands.greet:main"}\n',
    "mine.cpp": "STABLE_TORCH_LIBRARY_FRAGMENT(NEW, m) TORCH_LIBRARY_IMPL(NEW, CPU, m) f(PACKAGE, "
    "x)\n",
    "fit.sh": "#!/bin/sh\nexec python -m NEW fit\n",
    "weights.bin": "\0 import PACKAGE\n\udcff",
}


def encode(text: str) -> bytes:
    return text.replace("PACKAGE", PACKAGE).replace("NEW", NEW).encode(errors="surrogateescape")


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
    for name in ("src", "tests"):  # as they are here
        shutil.copytree(ROOT / name, root / name, dirs_exist_ok=True)
    for name, text in ADDED.items():
        (root / name).write_bytes(encode(text.replace("NEW", "PACKAGE")))
    (root / "fit.sh").chmod(0o755)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "x")
    return root


def test_everything_is_renamed_and_runs(repository):
    """Nothing says what it was called; its style is as good; classes and operators of its own are
    found.
    """
    before = list_contents(repository)
    done = rename(repository, NEW)
    assert (done.returncode, done.stderr) == (0, "")
    after = list_contents(repository)
    restored = {re.sub(f"^(src|tests)/{NEW}/", rf"\1/{PACKAGE}/", name) for name in after}
    assert restored == before.keys()
    for name, text in ADDED.items():
        assert after[name] == encode(text)
    assert os.access(repository / "fit.sh", os.X_OK)

    left = rf"-m {PACKAGE}\b|src/{PACKAGE}\b|\bfrom {PACKAGE}[. ]"
    left += rf"|\b{PACKAGE}\.(networks|models|data|callbacks)\b"
    elsewhere = "-- . :!src/litlab :!tests/litlab :!tests/template".split()
    grep = ["git", "grep", "-nIE", "-e", left, *elsewhere]
    assert subprocess.run(grep, cwd=repository).returncode == 1
    ruff = [sys.executable, *"-m ruff check --no-cache .".split()]
    assert subprocess.run(ruff, cwd=repository).returncode == 0
    config = min(
        repository.glob("configs/*.yaml"),
        key=lambda file: f"class_path: {NEW}." not in file.read_text(),
    )
    words = ("-m", NEW, "fit", "--config", config, "--print_config")
    process = Python(*words, cwd=repository, environment={"PYTHONPATH": repository / "src"})
    assert process.wait() == 0, process.printed()
    check_tests(repository, "-k", "operators or linear")  # all are imported


@pytest.mark.matrix
def test_the_teams_own_tests_pass_under_the_new_name(repository):
    assert rename(repository, NEW).returncode == 0
    check_tests(repository, "tests/template")  # these are left out under another name


def check_tests(root: Path, *arguments: str) -> None:
    examples = [name for name in ("src/examples",) if (root / name).is_dir()]
    process = start_pytest(root, f"tests/{NEW}", *examples, *arguments)
    assert process.wait() in (0, 5), "".join(process.printed())  # 5: the team has no such test


def test_what_can_not_be_is_one_line_and_changes_nothing(repository):
    before = list_contents(repository)
    for name, says in {
        "our-studio": "'our-studio' is not a valid name",
        "json": "json exists already",
        "studio": "there are uncommitted changes; commit them first",
    }.items():
        if name == "studio":
            (repository / "new.py").touch()
        done = rename(repository, name)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith(f"error: rename: {says}"), done.stderr
    (repository / "new.py").unlink()
    assert list_contents(repository) == before
