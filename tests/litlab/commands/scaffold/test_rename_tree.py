"""``rename`` on a copy of this repository: its tests pass."""

from pathlib import Path

import pytest

from litlab.commands.scaffold.mentions import Mentions
from tests.conftest import PACKAGE, ROOT
from tests.litlab.commands.scaffold.repositories import NAME, add_probe, commit, copy_files, git, ruff, run, run_tests


@pytest.fixture(scope="module")
def renamed(tmp_path_factory, images) -> Path:
    """The copy, with a run from before."""
    root = tmp_path_factory.mktemp("renamed") / "root"
    root.mkdir()
    copy_files(root)
    add_probe(root, images)
    git(root, "init", "--quiet")
    commit(root)
    is_tidy = ruff(root)
    code, _, err = run(root, "-m", PACKAGE, "fit", "--config", "configs/ours/probe.yaml", "--test_after_fit=false")
    assert code == 0, err
    code, _, err = run(root, "-m", PACKAGE, "rename", NAME)
    assert code == 0, err
    assert ruff(root) or not is_tidy
    commit(root)
    return root


def test_its_tests_pass(renamed):
    """Those that read sources, pages and configs; all of the team are imported."""
    assert not (renamed / f"src/{PACKAGE}").exists()
    some = "test_imports or test_links or test_batches_are_scaled or test_first_lines or test_every_command"
    run_tests(renamed, "tests/litlab/test_imports.py", "tests/litlab/test_data_page.py", f"tests/{NAME}", "-k", some)


def test_no_file_of_litlab_names_the_package():
    """Or it would be called by another team's name after their update."""
    parts = {path.stem for folder in ("src", "tests") for path in (ROOT / folder / PACKAGE).glob("[!_.]*")}
    mentions = Mentions([PACKAGE], NAME, parts)
    files = [*ROOT.glob("src/litlab/**/*"), *ROOT.glob("tests/litlab/**/*"), *ROOT.glob("tests/*.py")]
    of_names = Path(__file__).parent  # tests that have names of packages as their data
    sources = [file for file in files if file.suffix in (".py", ".yaml", ".html", ".js", ".txt")]
    texts = {file: file.read_text() for file in sources if not file.is_relative_to(of_names)}
    assert len(texts) > 400
    assert [str(file) for file, text in texts.items() if mentions.replaced(text)[1]] == []
