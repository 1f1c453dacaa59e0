"""``rename`` on a small repository whose package is called `yarn`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.litlab.commands.scaffold.tiny_project import contents

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
    "README.md": "# Yarn\n\n`python -m yarn fit` is our yarn.\n\n```\nsrc/yarn/     ours\nconfigs/      more\n```\n",
    "pyproject.toml": '[project]\nname = "yarn"\nversion = "1"\n',
    "configs/mine.yaml": "# python -m yarn fit --config configs/mine.yaml\nmodel: {body: yarn.models.mine.Mine}\n",
    "scripts/fit.sh": "#!/bin/sh\nexec python -m yarn fit\n",
    "notebook.ipynb": '{"cells": [{"source": ["from yarn.models.mine import Mine\\n"]}]}\r\n',
    "image: yarn": "image: yarn\n",
    "src/yarn/__init__.py": '"""Our yarn."""\n\nfrom yarn.models.mine import Mine\n\n__all__ = ["Mine"]\n',
    "src/yarn/__main__.py": MAIN,
    "src/yarn/models/mine.py": "class Mine:\n    pass\n",
    "src/litlab/ours.py": "import yarn  # as if it were litlab's\n",
    "tests/__init__.py": "",
    "tests/helpers.py": "",
    "tests/yarn/helper.py": "class Helper:\n    pass\n",
    "tests/yarn/test_mine.py": TEST,
}
BYTES = b"\0 import yarn\n"
GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def git(root: Path, *arguments: str) -> str:
    return subprocess.run([*GIT, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "x")


@pytest.fixture
def repository(tmp_path) -> Path:
    root = tmp_path / "root"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    (root / "scripts/fit.sh").chmod(0o755)
    (root / "weights.bin").write_bytes(BYTES)
    (root / ".gitignore").write_text("__pycache__/\n")
    git(root, "init", "--quiet")
    commit(root)
    return root


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS`` as a process of its own, as the package is under another name afterwards."""
    path = os.pathsep.join([str(root / "src"), os.environ["PYTHONPATH"]])
    variables = {**os.environ, "PYTHONPATH": path, "COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=root, env=variables, capture_output=True, text=True)


def rename(root: Path, package: str, *arguments: str) -> str:
    done = run(root, "-m", package, "rename", *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_everything_is_renamed_in_one_go(repository):
    before = contents(repository)
    printed = rename(repository, "yarn", "atelier")
    after = contents(repository)
    assert {name.replace("/atelier", "/yarn") for name in after} == set(before)
    texts = {name: text.decode() for name, text in after.items() if text is not None and name != "weights.bin"}
    assert texts["src/atelier/__init__.py"] == (
        '"""Our yarn."""\n\nfrom atelier.models.mine import Mine\n\n__all__ = ["Mine"]\n'
    )
    assert texts["tests/atelier/test_mine.py"].startswith("from atelier.models.mine import Mine\nfrom tests.atelier")
    assert texts["README.md"] == (
        "# Yarn\n\n`python -m atelier fit` is our yarn.\n\n```\nsrc/atelier/  ours\nconfigs/      more\n```\n"
    )
    for name in ("pyproject.toml", "configs/mine.yaml", "scripts/fit.sh", "notebook.ipynb"):
        assert texts[name] == FILES[name].replace("yarn", "atelier"), name
    assert (after["weights.bin"], texts["src/litlab/ours.py"]) == (BYTES, FILES["src/litlab/ours.py"])
    assert os.access(repository / "scripts/fit.sh", os.X_OK)
    assert "  image: yarn:1: image: yarn\n" in printed
    assert "src/yarn is src/atelier now.\ntests/yarn is tests/atelier now.\n" in printed
    assert [line.split()[1::2] for line in printed.splitlines() if "all" in line.split()] == [["all", "7", "10"]]
    assert "\n  git add --all && git commit --message 'Rename yarn to atelier'\n" in printed
    assert "\n  make lint    # shows lines that have become too long\n  make test\n" in printed


def test_a_second_name_and_back(repository):
    rename(repository, "yarn", "atelier")
    commit(repository)
    rename(repository, "atelier", "studio")
    commit(repository)
    (repository / "src/yarn/__pycache__").mkdir(parents=True)  # as a process leaves it that runs meanwhile
    done = run(repository, "-m", "studio", "rename", "yarn")
    assert done.stderr == "error: rename: there is src/yarn already; choose another name, or move that away\n"
    shutil.rmtree(repository / "src/yarn")
    rename(repository, "studio", "yarn")
    assert (repository / "configs/mine.yaml").read_text() == FILES["configs/mine.yaml"]


def test_a_shorter_name_makes_no_line_too_long(repository):
    assert "make lint" not in rename(repository, "yarn", "pub")


def new_folder(root: Path) -> None:
    (root / "studio").mkdir()


def change(root: Path) -> None:
    (root / "README.md").write_text("# Changed\n")


def new_file(root: Path) -> None:
    (root / "src/yarn/new.py").touch()


def no_repository(root: Path) -> None:
    (root / ".git").rename(root.parent / "elsewhere")


def dangling_link(root: Path) -> None:
    (root / "tests/studio").symlink_to("nowhere")
    commit(root)


@pytest.mark.parametrize(
    ("name", "prepare", "says"),
    [
        ("yarn", None, "rename: yarn is its name already; choose another one"),
        ("our-studio", None, "rename: 'our-studio' can't be the name of a package; use letters, digits and _, begin"),
        ("2nd", None, "rename: '2nd' can't be the name of a package"),
        ("studio_", None, "rename: 'studio_' can't be the name of a package"),
        ("class", None, "rename: class is a keyword of Python; choose another name"),
        ("Yarn", None, "rename: Yarn differs from yarn in its case alone; choose another name"),
        ("json", None, "rename: json is a module of Python or of an installed package; choose another name"),
        ("torch", None, "rename: torch is a module of Python or of an installed package; choose another name"),
        ("litlab", None, "rename: there is src/litlab already; choose another name, or move that away"),
        ("tests", None, "rename: there is tests already; choose another name, or move that away"),
        ("studio", new_folder, "rename: there is studio already; choose another name, or move that away"),
        ("helpers", None, "rename: there is tests/helpers.py already; choose another name, or move that away"),
        (
            "studio",
            change,
            "rename: there are uncommitted changes (README.md); commit them first, or git stash --include",
        ),
        ("studio", new_file, "rename: there are uncommitted changes (src/yarn/new.py); commit them first"),
        ("studio", no_repository, "rename: git could not undo it here (not a git repository"),
        ("studio", dangling_link, "rename: tests/yarn: Not a directory; nothing was changed"),  # found in the middle
    ],
)
def test_what_can_not_be_is_one_line_and_changes_nothing(repository, name, prepare, says):
    if prepare is not None:
        prepare(repository)
    before = contents(repository)
    done = run(repository, "-m", "yarn", "rename", name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {says}"), done.stderr
    assert done.stderr.count("\n") == 1
    assert contents(repository) == before
