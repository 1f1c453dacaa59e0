"""The documentation as a site: it builds without a warning, and what is wrong in it fails."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

# A page with every kind of mistake, and what the build says of each.
WRONG = {
    "[a page](nowhere.md)": "'nowhere.md'",
    "[a heading](#nowhere)": "'nowhere'",
    "[a heading of another page](right.md#elsewhere)": "'elsewhere'",
    "[a file](../configs/nowhere.yaml)": "'../configs/nowhere.yaml'",
    "[a page of the repository](../NOWHERE.md)": "NOWHERE",
    "![a picture](nowhere.png)": "nowhere.png",
}


def build(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as ``make docs`` does."""
    printed = subprocess.run(["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [line] = [line for line in printed.splitlines() if "sphinx-build" in line]
    *options, _, _ = shlex.split(line)[1:]
    command = [sys.executable, "-m", "sphinx", *options, docs, site]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "docs", folder)
    assert done.returncode == 0, done.stderr
    return folder


def links(page: Path) -> set[str]:
    """Return what a page links to, without headings."""
    return {link.partition("#")[0] for link in re.findall(r'href="([^"]+)"', page.read_text())}


def test_every_page_is_there(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")} >= pages
    for page in pages - {Path("index")}:
        assert f"{page}.html" in links(site / "index.html")
    assert "](docs/index.md)" in (ROOT / "README.md").read_text()  # so that every page is two clicks away


def test_the_readme_is_a_page_whose_links_lead_to_pages_and_files(site):
    assert {"architecture.html", "serve.html"} <= links(site / "overview.html")
    [config] = [link for link in links(site / "overview.html") if link.endswith("/linear.yaml")]
    assert (site / config).read_bytes() == (ROOT / "configs/linear.yaml").read_bytes()


def test_pictures_are_shown_and_none_is_left_over(site):
    shown = set()
    for page in site.rglob("*.html"):
        for source in re.findall(r'<img[^>]* src="(?!\w+:)([^"]+)"', page.read_text()):
            assert (page.parent / source).is_file(), f"{page.relative_to(site)}: {source}"
            shown.add(Path(source).name)
    assert {path.name for path in (ROOT / "docs/pictures").iterdir()} - shown == set()


def test_diagrams_are_drawn(site):
    assert re.search(r'class="mermaid[^>]*>\s*graph TD', (site / "architecture.html").read_text())


@pytest.fixture
def small(tmp_path) -> Path:
    """A repository with the settings of this one, a page and its contents."""
    (tmp_path / "docs/own").mkdir(parents=True)
    shutil.copy(ROOT / "docs/conf.py", tmp_path / "docs")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "README.md").write_text("# Mine\n\n[Right](docs/right.md#a-title)\n")
    (tmp_path / "docs/overview.md").write_text("```{include} ../README.md\n```\n")
    (tmp_path / "docs/index.md").write_text("# Pages\n\n## All\n\n- [README](../README.md), [right](right.md)\n")
    (tmp_path / "docs/right.md").write_text("# Right\n\n## A title\n")
    return tmp_path


def test_pages_of_ones_own_need_no_line(small):
    (small / "docs/own/mine.md").write_text("# Our cluster\n\n[Right](../right.md)\n")
    done = build(small / "docs", small / "site")
    assert done.returncode == 0, done.stderr
    assert "Our cluster" in (small / "site/right.html").read_text()  # in the contents at the side


def test_each_mistake_is_named(small):
    with (small / "docs/right.md").open("a") as page:
        page.write("\n\n".join(WRONG))
    (small / "README.md").write_text("# Mine\n\n[A page](docs/gone.md)\n")
    (small / "docs/lost.md").write_text("# In no contents\n")
    done = build(small / "docs", small / "site")
    assert done.returncode == 1
    warnings = [line for line in done.stderr.splitlines() if "WARNING: " in line]
    expected = [*WRONG.values(), "'../docs/gone.md'", "lost.md: WARNING: document isn't included in any toctree"]
    assert [text for text in expected if not any(text in line for line in warnings)] == []
    assert len(warnings) == len(expected), done.stderr
