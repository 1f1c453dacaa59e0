"""A project without experiments, for the commands that write and delete them; not a test itself."""

import shutil
from pathlib import Path

from tests.conftest import ROOT
from tests.litlab.conftest import TEAM

CONFTEST = """\
import pytest


@pytest.fixture(scope="module")
def team() -> str:
    return "{package}"
"""


def plant(root: Path, package: str) -> Path:
    """Make the project: an empty package, an overlay, and the tests' own modules."""
    for folder in (f"src/{package}", "configs/with", f"tests/{package}"):
        (root / folder).mkdir(parents=True)
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(TEAM / "auks" / name, root / "src" / package)
    for file in (ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.py")):
        shutil.copy(file, root / file.relative_to(ROOT))
    shutil.copy(TEAM / "configs/with/smoke.yaml", root / "configs/with")
    (root / f"tests/{package}/__init__.py").touch()
    (root / f"tests/{package}/conftest.py").write_text(CONFTEST.format(package=package))
    return root


def list_contents(root: Path) -> dict[str, bytes]:
    """All files, with their content."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not {"__pycache__", ".git"} & {*path.relative_to(root).parts}
    }
