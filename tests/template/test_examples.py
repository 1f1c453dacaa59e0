"""Any folder of src/examples can be deleted: nothing else knows it, and all else works.

Each in turn with ``-m "matrix or not matrix"``, else one and all. Whatever is there is tested; none
need be.
"""

import re
import shutil

import pytest

from tests.conftest import ROOT
from tests.processes import Python

EXAMPLES = sorted(path.parent.name for path in ROOT.glob("src/examples/*/__init__.py"))
COPIED = ("src/project", "src/examples", "configs")
SCRIPT = """
import sys
from pathlib import Path
from litlab.cli.classes import find_classes
from litlab.cli.main import run_command

def run(*words):
    sys.argv[1:] = words
    try:
        return run_command("project")
    except SystemExit as exit_:
        return exit_.code or 0

assert run("--help") == 0
assert run("schema") == 0  # imports all that a config can name
left = {module for modules in find_classes("project").values() for module in modules}
assert not [name for name in left if name.startswith(tuple(sys.argv[1:])) or ".test_" in name]
for config in Path("src/examples").glob("*/config.yaml"):
    assert run("fit", f"--config={config}", "--print_config") == 0, config
assert run("fit", "--config=configs/linear.yaml", "--trainer.max_epochs=1") == 0
"""
CASES = [
    pytest.param(EXAMPLES, id="all"),
    *(
        pytest.param([name], id=name, marks=[] if name == EXAMPLES[-1] else pytest.mark.matrix)
        for name in EXAMPLES
    ),
]


@pytest.mark.parametrize("names", CASES)
def test_all_else_works_without(names, tmp_path):
    for folder in COPIED:
        if (ROOT / folder).exists():
            shutil.copytree(ROOT / folder, tmp_path / folder)
    gone = [tmp_path / "src/examples" / name for name in names]
    for folder in gone if names != EXAMPLES else [tmp_path / "src/examples"]:
        shutil.rmtree(folder, ignore_errors=True)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    modules = [f"examples.{name}." for name in names]
    process = Python(
        script, *modules, cwd=tmp_path, environment={"PYTHONPATH": tmp_path / "src"}, merge=True
    )
    printed, _ = process.communicate()
    assert process.wait() == 0, printed
    assert list(tmp_path.glob("lightning_logs/linear/*/metrics.json"))


COPY = """
import sys
from litlab.cli.classes import find_classes
from litlab.cli.main import run_command

def run(*words):
    sys.argv[1:] = words
    find_classes.cache_clear()
    try:
        return run_command("project")
    except SystemExit as exit_:
        return exit_.code or 0

for name in sys.argv[1:]:
    assert run("new", f"my_{name}", "--like", name) == 0
    config = f"src/examples/my_{name}/config.yaml"
    assert run("fit", f"--config={config}", "--print_config") == 0
assert run("fit", f"--config={config}", "--trainer.max_steps=1") == 0
"""


@pytest.mark.skipif("segmentation" not in EXAMPLES, reason="it was deleted")
def test_new_copies_an_example(tmp_path):
    """Its classes have other names: those of the example are there, too."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "copy.py").write_text(COPY)
    names = [name for name in EXAMPLES if (ROOT / f"src/examples/{name}/model.py").is_file()]
    process = Python(
        tmp_path / "copy.py", *names, cwd=tmp_path,
        environment={"PYTHONPATH": tmp_path / "src"}, merge=True,
    )  # fmt: skip
    printed, _ = process.communicate()
    assert process.wait() == 0, printed
    model = (tmp_path / "src/examples/my_segmentation/model.py").read_text()
    assert "class MySegmentationSegmenter(ExperimentModule)" in model


def test_nothing_else_knows_an_example():
    """Pages may tell of it, and the results of a benchmark."""
    mention = re.compile(rf"\bexamples[./]({'|'.join(EXAMPLES)})\b")
    files = [
        path
        for folder in ("src/litlab", "src/project", "configs", "tests", "benchmarks", "notebooks")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".yaml", ".ipynb", ".j2", ".sh")
    ]
    files += [ROOT / name for name in ("Makefile", "Dockerfile")]
    assert len(files) > 300
    assert [path for path in files if EXAMPLES and mention.search(path.read_text())] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_folder_has_all_of_its_example(name):
    folder = ROOT / "src/examples" / name
    assert {"config.yaml", f"test_{name}.py"} <= {path.name for path in folder.iterdir()}
    page = (folder / "README.md").read_text()
    assert page.count("\n") <= 15
    assert f"--config src/examples/{name}/config.yaml" in page
    assert f"`rm -r src/examples/{name}`" in page
