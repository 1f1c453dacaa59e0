"""The documentation as a site, built by ``make docs``: the pages of this folder, by the sections of
index.md.

A link to a file that is not a page, such as a config, becomes a download of that file. The build
fails on a link that leads nowhere, and on a page that index.md does not list; those in own/ come
last, by their names, and need no line. Diagrams are drawn in the browser, by a script from the
network. Without it they are shown as text.
"""

import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
OWN = ROOT / "docs/own"
PAGES = {  # what stands here for a file at the top of the repository
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
RELATIVE_LINK = r"]\((?!\w+:|#)"
EXAMPLE_LINK = r"\[([^]]+)]\((?:\.\./)*(src/examples/[^)#]+)[^)]*\)"

project = html_title = (
    (ROOT / "README.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
)
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinxcontrib.mermaid"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4  # links to headings, by the names that code forges give them
html_theme = "furo"
html_copy_source = False


def prepare_page(app: Sphinx, page: str, content: list[str]) -> None:
    """Let links lead to pages, and give each section of index.md its part of the contents at the
    side.

    Args:
        app: The application.
        page: Name of the page.
        content: Its text, as the only element; changed in place.
    """
    content[0] = re.sub(EXAMPLE_LINK, _unlink_deleted, content[0])
    for file, name in PAGES.items():
        content[0] = re.sub(rf"]\(((\.\./)*)\.\./{re.escape(file)}", rf"](\1{name}", content[0])
    if page == "index":
        sections = re.split(r"^## ", content[0], flags=re.MULTILINE)[1:]
        own = "".join(f"](own/{file.name})" for file in sorted(OWN.glob("*.md")))
        content[0] += "".join(
            map(_contents, [*sections, f"This project\n{own}"] if own else sections)
        )


def prepare_included(app: Sphinx, file: Path, page: str, content: list[str]) -> None:
    """Let the links of a file at the top of the repository lead to the same files from this folder.

    Args:
        app: The application.
        file: Path of the file, relative to this folder.
        page: Name of the page that includes it.
        content: Its text, as the only element; changed in place.
    """
    content[0] = re.sub(RELATIVE_LINK, "](../", content[0])
    prepare_page(app, page, content)


def _unlink_deleted(link: re.Match[str]) -> str:
    """Keep a link to a file of an example, or its text alone: any example can be deleted."""
    return link[0] if (ROOT / link[2]).exists() else link[1]


def _contents(section: str) -> str:
    """List the pages that a section of index.md links to."""
    title, _, _ = section.partition("\n")
    pages = re.findall(RELATIVE_LINK + r"([^)#]+)\.md", section)
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""])


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", prepare_page)
    app.connect("include-read", prepare_included)
