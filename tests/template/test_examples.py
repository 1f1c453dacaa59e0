"""Any folder of src/examples can be deleted: nothing else knows it, and all else works.

Each in turn with ``-m "matrix or not matrix"``, else all. Whatever is there is tested; none need
be.
"""

import re
import shutil

import pytest

from tests.conftest import ROOT
from tests.processes import Python

EXAMPLES = sorted(path.parent.name for path in ROOT.glob("src/examples/*/__init__.py"))
SCRIPT = """
import sys
from pathlib import Path
from litlab.cli.classes import find_classes, import_all_classes
from litlab.cli.main import run_command

def run(*words):
    sys.argv[1:] = words
    find_classes.cache_clear()
    try:
        return run_command("project")
    except SystemExit as exit_:
        return exit_.code or 0

"""
REST = """
gone = tuple(sys.argv[1:])
assert run("--help") == 0
import_all_classes()
left = {module for modules in find_classes("project").values() for module in modules}
assert not [name for name in left if name.startswith(gone) or ".test_" in name]
for config in Path("src/examples").glob("*/config.yaml"):
    assert run("fit", f"--config={config}", "--print_config") == 0, config
assert run("fit", "--config=configs/linear.yaml", "--trainer.max_epochs=1") == 0
"""
COPY = """
for name in sys.argv[1:]:
    assert run("new", f"my_{name}", "--like", name) == 0
    config = f"src/examples/my_{name}/config.yaml"
    assert run("fit", f"--config={config}", "--print_config") == 0
assert run("fit", f"--config={config}", "--trainer.max_steps=1") == 0
"""


@pytest.fixture
def run_copy(tmp_path):
    """Runs a script in a copy of what a team has, without some of its folders."""

    def run(lines: str, *words: str, without: tuple[str, ...] = ()) -> None:
        for folder in ("src/project", "src/examples", "configs"):
            if (ROOT / folder).exists():
                shutil.copytree(ROOT / folder, tmp_path / folder)
        for folder in without:
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
        (tmp_path / "script.py").write_text(SCRIPT + lines)
        path = {"PYTHONPATH": tmp_path / "src"}
        process = Python("script.py", *words, cwd=tmp_path, environment=path, merge=True)
        assert process.wait() == 0, process.printed()

    return run


@pytest.mark.parametrize(
    "names", [EXAMPLES, *(pytest.param([name], marks=pytest.mark.matrix) for name in EXAMPLES)]
)
def test_all_else_works_without(names, run_copy, tmp_path):
    gone = [f"src/examples/{name}" for name in names]
    modules = [f"examples.{name}." for name in names]
    run_copy(REST, *modules, without=gone if names != EXAMPLES else ["src/examples"])
    assert list(tmp_path.glob("lightning_logs/linear/*/metrics.json"))


@pytest.mark.skipif("segmentation" not in EXAMPLES, reason="it was deleted")
def test_new_copies_an_example(run_copy, tmp_path):
    """Its classes have other names: those of the example are there, too."""
    run_copy(
        COPY, *(name for name in EXAMPLES if (ROOT / f"src/examples/{name}/model.py").is_file())
    )
    model = (tmp_path / "src/examples/my_segmentation/model.py").read_text()
    assert "class MySegmentationSegmenter(ExperimentModule)" in model


def test_nothing_else_knows_an_example():
    """Nor another example. Pages may tell of it, and the results of a benchmark."""
    mention = re.compile(rf"\bexamples[./]({'|'.join(EXAMPLES)})\b")
    files = [
        path
        for folder in ("src", "configs", "tests", "benchmarks", "notebooks")
        for suffix in ("py", "yaml", "ipynb", "j2", "sh")
        for path in (ROOT / folder).rglob(f"*.{suffix}")
    ]
    assert len(files) > 300
    for path in (*files, ROOT / "Makefile", ROOT / "Dockerfile"):
        assert {*mention.findall(path.read_text())} <= {path.parent.name, ""}, path


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_folder_has_all_of_its_example(name):
    folder = ROOT / "src/examples" / name
    assert {"config.yaml", f"test_{name}.py"} <= {path.name for path in folder.iterdir()}
    page = (folder / "README.md").read_text()
    assert page.count("\n") <= 15
    assert f"--config src/examples/{name}/config.yaml" in page
    assert f"`rm -r src/examples/{name}`" in page
