"""notebooks/quickstart.ipynb runs from top to bottom, and is kept without outputs."""

import json
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from litlab.runs.find import find_run
from tests.conftest import OFFLINE, ROOT

QUICKSTART = ROOT / "notebooks/quickstart.ipynb"


@pytest.fixture
def clone(tmp_path, monkeypatch) -> Path:
    """What the notebook needs around it, as the working directory; there are no runs."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return tmp_path


def test_quickstart(clone):
    notebook = nbformat.read(QUICKSTART, as_version=4)
    client = NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(clone / "notebooks")}})
    client.execute()  # raises at the first cell that does
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    run = find_run("quickstart")
    accuracy = json.loads(run.metrics.read_text())["test"]["test/acc"]
    assert f"360 images, accuracy {accuracy:.3f}" in printed  # as the command measured it
    assert accuracy > 0.7
    assert printed.count(": recall ") == 10
    assert len(pictures) == 2
    assert sum("test/acc" in str(output) for output in outputs) >= 3  # of the run, and of the network fitted here
