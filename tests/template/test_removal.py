"""An experiment is deleted by deleting its files, as docs/updates.md says; what is left runs,
as do its tests.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import Python, start_pytest

SECTION = re.search(
    r"## Removing an experiment\n(.*)", (ROOT / "docs/updates.md").read_text(), re.DOTALL
)
SOME = "test_nothing_is_imported_in_a_circle or test_cifar_muon or test_networks"
NOT_COPIED = {".git", ".venv", "build", "data", "dist", "lightning_logs"}  # of the root


def not_of_the_tree(folder: str, names: list[str]) -> set[str]:
    """Names in a folder that no test needs, and that may be large."""
    made = {
        name for name in names if name.endswith((".egg-info", "_cache")) or name == "__pycache__"
    }
    return made | (NOT_COPIED & set(names) if Path(folder) == ROOT else set())


@pytest.fixture(scope="module")
def left(tmp_path_factory) -> Path:
    """The tree without text and series."""
    folder = tmp_path_factory.mktemp("left")
    shutil.copytree(ROOT, folder, ignore=not_of_the_tree, dirs_exist_ok=True)
    assert SECTION is not None
    for block in re.findall(r"```bash\n(.*?)```", SECTION[1], re.DOTALL):
        subprocess.run(["bash", "-euc", block], cwd=folder, check=True)
    return folder


def test_what_is_left_runs(left, short, tmp_path):
    names = {path.stem for path in (left / "src/project").rglob("*.py")}
    assert {"cifar_cnn", "whitened_cnn", "vgg"} <= names
    assert not {"transformer_classifier", "lstm_forecaster", "attention", "segment_rnn"} & names

    config = left / "configs/cifar.yaml"
    fit = [*"-m project fit --config".split(), config, *short(config), "--model.width=16"]
    process = Python(*fit, cwd=tmp_path, environment={"PYTHONPATH": left / "src"})
    out, err = process.communicate()
    assert process.wait() == 0, err
    assert "test/acc" in out


def test_its_tests_are_found_and_pass(left):
    """All of them are imported; a few run: of litlab, whose tests know no experiment, and of what
    is left.
    """
    folders = [name for name in ("tests", "src/examples") if (left / name).is_dir()]
    process = start_pytest(left, *folders, "-k", SOME)
    printed, _ = process.communicate()
    assert process.wait() == 0, printed
    assert "error" not in printed
    assert int(re.search(r"(\d+) passed", printed)[1]) >= 4
