"""docs/tutorials/own_data.md works: its files are written, its commands run in their order, in a
copy of the project.

In it, a block of Python or YAML is a file, which the line before it names; a block of bash holds
commands; and a block of text after it is what they print, or some lines of it.
"""

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

from litlab.runs.folder import read_json
from litlab.util.files import write_text
from tests.conftest import BRIEF, PACKAGE, ROOT
from tests.processes import Python, start_pytest

PAGE = (ROOT / "docs/tutorials/own_data.md").read_text()
FILE = r"`([\w./]+\.(?:py|yaml))`[^`\n]*:\n\n(?=```(?:python|yaml))"
BLOCKS = re.findall(rf"(?:{FILE})?^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EPOCHS = "--trainer.max_epochs=9"  # of the run that is stopped, and of the same without a stop
# Ctrl-C in the third epoch.
STOPPED = """
import os
import runpy
import signal
import sys
from lightning.pytorch import LightningModule

def stop(module):
    if module.current_epoch == 2:
        os.kill(os.getpid(), signal.SIGINT)

LightningModule.on_train_epoch_start = stop
sys.argv[0] = "project"
runpy.run_module("project", run_name="__main__", alter_sys=True)
"""


def run_line(line: str) -> str:
    """Run a command of the tutorial, fits in short; return what it printed."""
    python, *words = shlex.split(line)
    is_stopped = "200" in words and "meters_whole" not in words
    assert python == "python", line
    if words[1:2] == ["pytest"]:
        process = start_pytest(Path.cwd(), *words[2:])
    else:
        words += BRIEF if "fit" in words and "--config" in words else []  # later settings win
        words += [EPOCHS] if "200" in words else []
        start = ["stopped.py", *words[2:]] if is_stopped else words
        process = Python(*start, cwd=Path.cwd(), environment={"PYTHONPATH": Path("src").absolute()})
    printed = "".join(process.communicate())
    refused = re.search("^error: ", printed, re.MULTILINE) is not None
    assert process.wait() == (130 if is_stopped else 2 * refused), printed
    return printed


def find_words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]{2,}", text))


def test_own_data(tmp_path, monkeypatch):
    made = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (f"src/{PACKAGE}", "configs", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=made)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "stopped.py").write_text(STOPPED)
    monkeypatch.chdir(tmp_path)
    for (file, kind, text), (_, after, shown) in pairwise([*BLOCKS, ("", "", "")]):
        if file:
            write_text(Path(file), text)
        if kind == "bash":
            printed = "".join(run_line(line) for line in text.splitlines())
            expected = shown if after == "text" else ""
            errors = [line for line in expected.splitlines() if line.startswith("error: ")]
            assert ("\nerror: " in f"\n{printed}") == bool(errors), printed
            assert all(line in printed for line in errors), printed
            # Numbers depend on machine and length
            assert find_words(expected) <= find_words(printed), printed
    runs = ("meters/version_1", "meters_whole/version_0")
    stopped, whole = (read_json(Path(f"lightning_logs/{run}/metrics.json")) for run in runs)
    assert stopped["test"] == whole["test"]
    assert stopped["best"]["value"] == whole["best"]["value"]
