"""notebooks/quickstart.ipynb runs from top to bottom."""

import shutil
import subprocess
from typing import Any

import matplotlib.pyplot as plt
import pytest

from litlab.runs.find import find_run
from litlab.runs.folder import read_json
from tests.conftest import PACKAGE, ROOT

QUICKSTART = ROOT / "notebooks/quickstart.ipynb"


@pytest.mark.filterwarnings(
    "ignore:The number of training batches", "ignore:.*does not have many workers"
)
def test_quickstart(run, tmp_path, monkeypatch, capsys):
    """In this process, with its fit: a kernel, and another process, would take seconds to start."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    fitted, shown, start = [], [], subprocess.run

    def fit_here(words: list[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        if words[1:3] != ["-m", PACKAGE]:
            return start(words, **options)
        done = run(*words[3:]).check()
        fitted.append(words)
        return subprocess.CompletedProcess(words, done.code, done.out, done.err)

    monkeypatch.setattr(subprocess, "run", fit_here)
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.gcf().axes)))
    cells = read_json(QUICKSTART)["cells"]
    assert not any(cell.get("outputs") for cell in cells), "it is kept without outputs"
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    exec("\n".join(code), {"__name__": "notebook"})

    accuracy = read_json(find_run("quickstart").metrics)["test"]["test/acc"]
    printed = capsys.readouterr().out
    assert len(fitted) == 1
    assert f"360 images, accuracy {accuracy:.3f}" in printed  # as the command measured it
    assert accuracy > 0.7
    assert printed.count(": recall ") == 10
    assert shown == [12, 2]
    assert "test/acc" in printed.rpartition("recall")[2]  # of the network that is fitted here
