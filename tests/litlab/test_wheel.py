"""litlab as a wheel, which another team installs."""

import shutil
import subprocess
import sys
from zipfile import ZipFile

from tests.conftest import ROOT


def test_the_wheel_has_whatever_the_sources_have(tmp_path):
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    # Building leaves files beside the sources
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    build = [sys.executable, "-c", "from setuptools.build_meta import *; build_wheel('.')"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    packed = {name for name in ZipFile(wheel).namelist() if name.startswith("litlab/")}
    files = [path for path in (tmp_path / "src/litlab").rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path / "src")) for path in files} - packed == set()
