"""litlab as a wheel in an environment of its own, under another team's package."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.conftest import OFFLINE, PACKAGE, ROOT
from tests.litlab.conftest import CONFIGS, TEAM


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """The Python of an environment with the dependencies and the wheel: of this repository, only litlab is there."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "src"):  # building leaves files beside the sources
        source = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(source, folder / name, ignore=ignore) if source.is_dir() else shutil.copy(source, folder)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder, folder]
    subprocess.run([*pip, *build], check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    [packages] = (folder / "venv/lib").glob("python*/site-packages")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", packages, wheel], check=True)
    shutil.rmtree(packages / PACKAGE)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # a path there does not become one here
    return folder / "venv/bin/python"


def test_another_team_uses_litlab_alone(environment, images, tmp_path):
    shutil.copytree(TEAM / "auks", tmp_path / "src/auks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(CONFIGS, tmp_path / "configs")
    variables = {**os.environ, **OFFLINE, "PYTHONPATH": "src", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [environment, *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done

    where = run("-c", f"import litlab, importlib.util as util; print(litlab.__file__, util.find_spec('{PACKAGE}'))")
    assert where.stdout.startswith(str(environment.parents[1]))
    assert where.stdout.endswith("None\n")
    data = ["--data.dataset=folder", f"--data.path={images}", "--trainer.accelerator=cpu"]
    done = run("-m", "auks", "fit", "--config", "configs/images.yaml", *data)
    assert "test/acc" in done.stdout
    assert "error" not in done.stderr
    assert "leaked" not in done.stderr  # as nanobind says at the end where objects were never collected
    listed = run("-m", "auks", "runs")
    assert "images/version_0" in listed.stdout
    saved = (tmp_path / "lightning_logs/images/version_0/config.yaml").read_text()
    assert "class_path: auks.images.SmallCNN" in saved
    provenance = (tmp_path / "lightning_logs/images/version_0/provenance.json").read_text()
    assert '"auks"' in provenance
