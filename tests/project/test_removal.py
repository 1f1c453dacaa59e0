"""An experiment is deleted by deleting its files, as docs/experiments.md says; what is left runs."""

import re
import shutil
import subprocess

from tests.conftest import ROOT
from tests.processes import Python

SECTION = re.search(r"## Removing an experiment\n(.*?)\n## ", (ROOT / "docs/experiments.md").read_text(), re.DOTALL)


def test_what_is_left_runs(short, tmp_path):
    for name in ("src", "configs", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    assert SECTION is not None
    for block in re.findall(r"```bash\n(.*?)```", SECTION[1], re.DOTALL):
        subprocess.run(["bash", "-euc", block], cwd=tmp_path, check=True)
    left = {path.stem for path in (tmp_path / "src/project").rglob("*.py")}
    assert {"cifar_cnn", "whitened_cnn", "vgg", "image_plots"} <= left
    assert not [name for name in left if re.search("text|series|forecast|lstm|segment|transformer|attention", name)]

    config = tmp_path / "configs/cifar.yaml"
    fit = ["-m", "project", "fit", "--config", config, *short(config), "--model.width=16"]
    process = Python(*fit, cwd=tmp_path, environment={"PYTHONPATH": tmp_path / "src"})
    out, err = process.communicate()
    assert process.wait() == 0, err
    assert "test/acc" in out
