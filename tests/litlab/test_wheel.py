"""litlab as a wheel in an environment of its own, under another team's package."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.conftest import OFFLINE, ROOT

MODEL = '''
"""Another team's model."""

import torch
from torch import nn

from litlab.tasks import Classifier


class Brightness(Classifier):
    """Tell classes by the mean of each channel.

    Args:
        num_classes: Number of classes, which the data knows.
    """

    def __init__(self, num_classes: int | None = None) -> None:
        network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, num_classes))
        super().__init__(network, num_classes=num_classes)
'''
CONFIG = """
experiment: brightness
model: {class_path: Brightness}
data: {class_path: ImageData, init_args: {dataset: folder, path: PATH, batch_size: 40}}
trainer: {max_epochs: 2, accelerator: cpu, log_every_n_steps: 1}
checkpoint: {monitor: val/acc, mode: max}
"""
FACE = '''"""The commands of another team."""

from litlab.cli import main

if __name__ == "__main__":
    main(package=__package__)
'''


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
    shutil.rmtree(packages / "project")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # a path there does not become one here
    return folder / "venv/bin/python"


def test_another_team_uses_litlab_alone(environment, images, tmp_path):
    package = tmp_path / "src/acme"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(FACE)
    (package / "models.py").write_text(MODEL)
    (tmp_path / "acme.yaml").write_text(CONFIG.replace("PATH", str(images)))
    variables = {**os.environ, **OFFLINE, "PYTHONPATH": "src", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [environment, *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done

    where = run("-c", "import litlab, importlib.util as util; print(litlab.__file__, util.find_spec('project'))")
    assert where.stdout.startswith(str(environment.parents[1]))
    assert where.stdout.endswith("None\n")
    done = run("-m", "acme", "fit", "--config", "acme.yaml")
    assert "test/acc" in done.stdout
    assert "error" not in done.stderr
    listed = run("-m", "acme", "runs")
    assert "brightness/version_0" in listed.stdout
    saved = (tmp_path / "lightning_logs/brightness/version_0/config.yaml").read_text()
    assert "class_path: acme.models.Brightness" in saved
    provenance = (tmp_path / "lightning_logs/brightness/version_0/provenance.json").read_text()
    assert '"acme"' in provenance
