"""docs/updates.md: its commands bring a team's repository from the version before to this one."""

import os
import re
import subprocess
from pathlib import Path

import pytest

import litlab
from tests.conftest import PACKAGE, ROOT
from tests.litlab.pages import blocks
from tests.litlab.scaffold.repositories import add_probe, commit, copy_files, git, run, run_tests

NAME = "studio"  # what the team calls its package
IDENTITY = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
# The rename of this version, for a tree whose own litlab may not have it.
RENAME = """
import sys
sys.path.insert(0, "src")
from litlab.cli import main
main(sys.argv.pop(1))
"""


def version_before() -> tuple[str, str]:
    """The newest released version before this one, and its commit; skips the test where there is no such history."""
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[([\d.]+)\] - \d(?:[^#]*?^Commit (\w+)\.)?", text, re.MULTILINE)
    version, noted = next(found for found in versions if found[0] != litlab.__version__)
    for start in (f"v{version}", noted):
        main = ["git", "cat-file", "-e", f"{start}:src/{PACKAGE}/__main__.py"]
        if subprocess.run(main, cwd=ROOT, capture_output=True).returncode == 0:
            return version, start
    pytest.skip(f"git has no {version} with a package {PACKAGE} here: neither a tag v{version} nor the commit {noted}")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory) -> Path:
    """A repository with two commits: the version before, which is a tag, and this one."""
    version, start = version_before()
    root = tmp_path_factory.mktemp("upstream") / "root"
    root.mkdir()
    git(root, "init", "--quiet")
    archive = subprocess.run(["git", "archive", start], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=root, input=archive, check=True)
    commit(root, version)
    git(root, "tag", f"v{version}")
    git(root, "rm", "-r", "--quiet", ".")
    copy_files(root)
    commit(root, litlab.__version__)
    return root


@pytest.fixture(scope="module")
def team(upstream, images, tmp_path_factory) -> Path:
    """The repository of a team that began with the version before, renamed the package and added an experiment."""
    root = tmp_path_factory.mktemp("team") / "root"
    git(root.parent, "clone", "--quiet", "--branch", git(upstream, "tag").strip(), upstream, root)
    git(root, "switch", "--quiet", "--create", "trunk")
    git(root, "remote", "remove", "origin")
    add_probe(root, images)
    (root / "docs/ours.md").write_text("# Ours\n")
    (root / "configs/with/ours.yaml").write_text("# --config configs/with/ours.yaml\ntrainer: {max_epochs: 1}\n")
    (root / "src/litlab/left_behind.py").touch()
    commit(root)
    script = root.with_name("rename.py")
    script.write_text(RENAME)
    code, _, err = run(root, script, PACKAGE, "rename", NAME)
    assert code == 0, err
    commit(root)
    return root


def shell(block: str, cwd: Path) -> None:
    words, variables = ["bash", "-euc", block], {**os.environ, **IDENTITY}
    done = subprocess.run(words, cwd=cwd, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_commands_bring_litlab_and_leave_what_is_the_teams(team, upstream):
    once, update = [block for block in blocks("updates.md", "bash") if "upstream" in block][:2]
    shell(once.replace("URL", str(upstream)), team)
    shell(update, team)
    code, _, err = run(team, "-m", NAME, "rename", NAME)
    assert code == 0, err
    commit(team)

    for folder in ("src/litlab", "tests/litlab"):
        assert git(team, "ls-tree", "-r", f"HEAD:{folder}") == git(upstream, "ls-tree", "-r", f"HEAD:{folder}")
    of_litlab = [":!src/litlab", ":!tests/litlab", ":(exclude,glob)tests/*.py", ":!docs", ":!CHANGELOG.md"]
    assert git(team, "diff", "--name-only", "trunk@{2}", "--", ".", *of_litlab) == ""
    assert git(team, "diff", "--name-only", "trunk@{2}", "--", "docs/results.md", "docs/ours.md") == ""
    pages = {page: page.read_text() for page in (team / "docs").rglob("*.md")}
    assert f"python -m {NAME} " in pages[team / "docs/runs.md"]
    assert [page.name for page, text in pages.items() if f"python -m {PACKAGE} " in text] == []

    flags = ("--config", "configs/with/smoke.yaml")
    code, out, err = run(team, "-m", NAME, "fit", "--config", "configs/ours/probe.yaml", *flags)
    assert code == 0, err
    assert "test/acc" in out
    some = "test_imports or test_norms or test_types"
    run_tests(team, "tests/litlab/test_imports.py", "tests/litlab/test_types.py", f"tests/{NAME}", "-k", some)
