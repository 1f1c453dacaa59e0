"""The documentation as a site: it builds without a warning, and what is wrong in it fails."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


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
