"""The tables in README.md and docs/ are what the result files say."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT

RESULTS = ROOT / "benchmarks/results"
FOLDERS = re.compile(r"(?<![\w.:/])[/~](?:[\w.+-]+/)+")  # of an absolute path


def test_no_table_has_drifted(run, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = run("results", "--check")
    assert done.code == 0, done.out + done.err


def test_every_table_is_in_a_page():
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    for table in (RESULTS / "tables").glob("*.yaml"):
        assert f"\n<!-- results: {table.stem} -->\n" in pages, table


@pytest.mark.parametrize("file", sorted(RESULTS.rglob("*.json")), ids=lambda file: file.stem)
def test_result_files_name_no_folder_of_a_machine(file):
    text = json.dumps(json.loads(file.read_text()))  # without escapes of slashes
    assert not FOLDERS.search(text), FOLDERS.search(text)


def test_the_example_in_the_page_is_a_table(run, tmp_path):
    page = (ROOT / "docs/results.md").read_text()
    example = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert example is not None
    shutil.copytree(RESULTS, tmp_path / "benchmarks/results")
    (tmp_path / "benchmarks/results/tables/mine.yaml").write_text(example[1])
    Path("README.md").write_text("<!-- results: mine -->\n<!-- end of results -->\n")
    assert run("results").code == 0
    assert "| digits | .983 (.975 to .992) | 97.2 % |\n| wine | 1.000 at best |" in Path("README.md").read_text()
