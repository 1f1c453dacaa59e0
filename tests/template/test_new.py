"""``new`` in this project: docs/experiments.md shows what it writes and prints."""

import re
import shutil

from tests.conftest import ROOT

PAGE = (ROOT / "docs/experiments.md").read_text()
NAME = "mine"  # on the page
FILES = re.compile(
    rf"^`(\S+/(?:test_)?{NAME}\.\w+)`(?:(?!^```).)*^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def test_the_page_shows_what_is_written_and_printed(run, tmp_path, monkeypatch):
    """The page writes `mine`, which may be here: whoever reads the README types it."""
    ignored = shutil.ignore_patterns("__pycache__", f"*{NAME}.*")
    for name in ("src/project", "configs/with", "tests/project"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    monkeypatch.setattr(
        "litlab.commands.scaffold.new.package_folder", lambda: tmp_path / "src/project"
    )
    blocks = re.findall(r"^```(?:bash|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    typed, printed = blocks[:2]
    done = run(*typed.split()[3:])
    assert (done.code, done.err, done.out) == (0, "", printed)

    [(name, text)] = FILES.findall(PAGE.partition("## Further metrics")[0])
    assert (tmp_path / name).read_text() == text
