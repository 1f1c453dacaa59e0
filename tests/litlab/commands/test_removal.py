"""Any folder of litlab/commands can be deleted: what it did is gone, and all else works.

Each in turn with ``-m "matrix or not matrix"``, else one and all: tests/litlab/test_imports.py
shows that none imports another.
"""

import os
import shutil
from pathlib import Path

import pytest

import litlab
from tests.litlab.conftest import CONFIGS, TEAM
from tests.processes import Python

SOURCES = Path(litlab.__file__).parent
FOLDERS = sorted(path.parent.name for path in SOURCES.glob("commands/*/__init__.py"))
# Forked from a process that has imported torch and litlab: litlab is imported anew, from the copy.
SCRIPT = """
import sys
from lightning.pytorch.strategies import StrategyRegistry
StrategyRegistry.remove("fsdp2")
for name in [name for name in sys.modules if name.partition(".")[0] == "litlab"]:
    del sys.modules[name]
from litlab.cli.commands import FLAGS, OTHERS, list_commands
from litlab.cli.main import run_command
from litlab.util.team import use_package

def run(*words):
    sys.argv[1:] = words
    try:
        return run_command("auks")
    except SystemExit as exit_:
        return exit_.code or 0

config, table, *folders = sys.argv[1:]
is_of = lambda entry: entry[0].startswith(tuple(f"litlab.commands.{folder}." for folder in folders))
use_package("auks")
gone = [name for name, entry in OTHERS.items() if is_of(entry)]
assert set(gone) == OTHERS.keys() - list_commands().keys()
for name in gone:
    assert run(name) == 2
for flag in [flag for flag, entry in FLAGS.items() if is_of(entry)]:
    value = {"--plan": ["1x1"], "--check": []}.get(flag, ["2"])
    assert run("fit", f"--config={config}", flag, *value) == 2
for name in ["--help", *list_commands()]:
    assert run(name, *["--help"][: name != "--help"]) == 0, name
assert run("fit", f"--config={config}", "--trainer.max_epochs=1", "--trainer.accelerator=cpu") == 0
assert run("test", "--run=last") == 0
assert run("predict", "--run=last", f"--input={table}", "--output=predicted.csv") == 0
"""


CASES = [
    pytest.param(FOLDERS, id="all"),
    *(
        pytest.param([name], id=name, marks=[] if name == "repeat" else pytest.mark.matrix)
        for name in FOLDERS
    ),
]


@pytest.mark.parametrize("folders", CASES)
def test_all_else_works_without(folders, tmp_path):
    copy, script, table = tmp_path / "src/litlab", tmp_path / "script.py", tmp_path / "table.csv"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in folders:
        shutil.rmtree(copy / "commands" / folder)
    script.write_text(SCRIPT)
    table.write_text(
        "age,income,visits,distance,plan,city,channel\n30,2000,5,1.5,basic,city 01,phone\n"
    )
    path = os.pathsep.join(map(str, (tmp_path / "src", TEAM)))

    words = (script, CONFIGS / "table.yaml", table, *folders)
    process = Python(*words, cwd=tmp_path, environment={"PYTHONPATH": path}, merge=True)
    assert process.wait() == 0, process.printed()
    assert (tmp_path / "predicted.csv").is_file()
