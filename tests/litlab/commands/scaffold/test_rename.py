"""``rename``, on a copy of this repository."""

import os
import re
import sys

import pytest

from tests.clone import Clone, clone_tree
from tests.conftest import PACKAGE
from tests.litlab.commands.scaffold.tiny_project import list_contents
from tests.processes import start_pytest

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


def encode(text) -> bytes:
    return text.replace("PACKAGE", PACKAGE).replace("NEW", NEW).encode(errors="surrogateescape")


@pytest.fixture
def repository(tmp_path) -> Clone:
    clone = clone_tree(tmp_path)
    for name, text in ADDED.items():
        (clone.root / name).write_bytes(encode(text.replace("NEW", "PACKAGE")))
    (clone.root / "fit.sh").chmod(0o755)
    clone.commit()
    return clone


def test_everything_is_renamed_and_runs(repository):
    """Nothing says what it was called; its style is as good; its classes are found."""
    root = repository.root
    before = list_contents(root)
    repository.call(f"{PACKAGE} rename {NEW}")
    after = list_contents(root)
    restored = {re.sub(f"^(src|tests)/{NEW}/", rf"\1/{PACKAGE}/", name) for name in after}
    assert restored == before.keys()
    for name, text in ADDED.items():
        assert after[name] == encode(text)
    assert os.access(root / "fit.sh", os.X_OK)

    left = rf"-m {PACKAGE}\b|src/{PACKAGE}\b|\bfrom {PACKAGE}[. ]"
    left += rf"|\b{PACKAGE}\.(networks|models|data|callbacks)\b"
    elsewhere = "':!src/litlab' ':!tests/litlab' ':!tests/template'"
    repository.shell(f"! git grep -nIE -e '{left}' -- . {elsewhere}")
    repository.shell(f"{sys.executable} -m ruff check --no-cache .")
    config = min(
        root.glob("configs/*.yaml"),
        key=lambda file: f"class_path: {NEW}." not in file.read_text(),
    )
    repository.call(f"{NEW} fit --config {config} --print_config")
    check_tests(root, "-k", "linear")  # all are imported


@pytest.mark.matrix
def test_the_teams_own_tests_pass_under_the_new_name(repository):
    repository.call(f"{PACKAGE} rename {NEW}")
    check_tests(repository.root, "tests/template")  # these are left out under another name


def check_tests(root, *arguments):
    examples = ["src/examples"] * (root / "src/examples").is_dir()
    process = start_pytest(root, f"tests/{NEW}", *examples, *arguments)
    assert process.wait() in (0, 5), "".join(process.printed())  # 5: the team has no such test


def test_what_can_not_be_is_one_line_and_changes_nothing(repository):
    before = list_contents(repository.root)
    uncommitted = repository.root / "new.py"
    for name, says in {
        "our-studio": "'our-studio' is not a valid name",
        "json": "json exists already",
        "studio": "there are uncommitted changes; commit them first",
    }.items():
        if name == "studio":
            uncommitted.touch()
        refused = repository.call(f"{PACKAGE} rename {name}", code=2)
        assert refused.startswith(f"error: rename: {says}"), refused
        assert refused.count("\n") == 1
    uncommitted.unlink()
    assert list_contents(repository.root) == before
