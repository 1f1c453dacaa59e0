"""The documentation as a site: it builds without a warning, and what is wrong in it fails."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def build(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as ``make docs`` does."""
    printed = subprocess.run(
        ["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    [line] = [line for line in printed.splitlines() if "sphinx-build" in line]
    *options, _, _ = shlex.split(line)[1:]
    command = [sys.executable, "-m", "sphinx", *options, docs, site]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def links(page: Path) -> set[str]:
    """Return what a page links to, without headings."""
    return {link.partition("#")[0] for link in re.findall(r'href="([^"]+)"', page.read_text())}


def test_the_site(tmp_path):
    """A link that leads nowhere is a warning, and fails."""
    done = build(ROOT / "docs", tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {
        path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")
    }
    for page in pages - {Path("index")}:
        assert f"{page}.html" in links(tmp_path / "index.html")
    # So that every page is two clicks away
    assert "](docs/index.md)" in (ROOT / "README.md").read_text()

    # The README is a page whose links lead to pages and files.
    assert {"architecture.html", "serve.html"} <= links(tmp_path / "overview.html")
    [config] = [link for link in links(tmp_path / "overview.html") if link.endswith("/linear.yaml")]
    assert (tmp_path / config).read_bytes() == (ROOT / "configs/linear.yaml").read_bytes()

    # Diagrams are drawn.
    assert re.search(
        r'class="mermaid[^>]*>\s*graph TD', (tmp_path / "architecture.html").read_text()
    )
