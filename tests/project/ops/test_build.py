"""The libraries of operators: built once, kept for their user alone; what is said where they can't be built."""

import os
import shutil
import stat
from pathlib import Path

import pytest
import torch

from project.ops import build as builder
from project.ops.build import NotBuilt, build, load, main
from tests.processes import Python

COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(not COMPILER, reason="needs a C++ compiler")
SOFTMAX = """
import torch
from project.ops.masked_softmax import masked_softmax

scores = torch.tensor([[0.0, 0.0, 5.0], [1.0, 1.0, 1.0]])
mask = torch.tensor([[True, True, False], [False, False, False]])
for _ in range(2):
    print(masked_softmax(scores, mask).tolist())
"""
RIGHT = "[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]\n" * 2


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Where libraries go in a test."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    return tmp_path / "extensions/project_ops"


@pytest.fixture
def sources(tmp_path, monkeypatch) -> Path:
    """A folder of sources with one that compiles at once."""
    path = tmp_path / "csrc"
    path.mkdir()
    (path / "tiny.cpp").write_text("int tiny() { return 1; }\n")
    monkeypatch.setattr(builder, "SOURCES", path)
    return path


@pytest.fixture
def said(monkeypatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(builder, "_say", lines.append)
    return lines


def _script(tmp_path: Path, text: str, **variables: object) -> Python:
    script = tmp_path / "script.py"
    if not script.exists():  # another process may be reading it
        script.write_text(text)
    return Python(script, cwd=tmp_path, environment=variables)


def _counting_compiler(tmp_path: Path) -> Path:
    """A compiler that notes each call."""
    path = tmp_path / "counting"
    path.write_text(f'#!/bin/sh\necho call >> "{tmp_path}/calls"\nexec {COMPILER} "$@"\n')
    path.chmod(0o755)
    return path


def test_without_a_compiler_one_line_says_so_and_the_result_is_right(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    process = _script(tmp_path, SOFTMAX, PATH=tmp_path / "empty", CXX="")
    out, err = process.communicate()
    assert (process.wait(), out) == (0, RIGHT)
    assert err == (
        "masked_softmax: no C++ compiler is installed (c++, g++, clang++); plain PyTorch computes the same instead, "
        "more slowly\n"
    )
    assert not folder.exists()


@needs_compiler
def test_processes_that_start_at_once_build_once(tmp_path, folder):
    compiler = _counting_compiler(tmp_path)
    processes = [_script(tmp_path, SOFTMAX, CXX=compiler) for _ in range(3)]
    for process in processes:
        out, err = process.communicate()
        assert (process.wait(), out) == (0, RIGHT), err
    assert (tmp_path / "calls").read_text() == "call\n"
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".so"]  # the lock and the library


@needs_compiler
def test_the_first_use_may_be_in_a_compiled_function(tmp_path, folder):
    text = SOFTMAX.replace(
        "for _", "masked_softmax = torch.compile(masked_softmax, fullgraph=True, backend='eager')\nfor _"
    )
    process = _script(tmp_path, text)
    out, err = process.communicate()
    assert (process.wait(), out) == (0, RIGHT), err
    assert "plain PyTorch" not in err
    assert len(list(folder.glob("*.so"))) == 1


IMPORTS = """
import sys

before = set(sys.modules)
import project.ops.masked_softmax
import project.ops.squared_relu

print(sorted(set(sys.modules) - before - {"project"}))
"""


def test_importing_builds_nothing_and_imports_nothing_else(tmp_path, folder):
    """Every command imports all modules of the project; Lightning is there already."""
    process = _script(tmp_path, IMPORTS)
    out, err = process.communicate()
    names = ["project.ops", "project.ops.build", "project.ops.masked_softmax", "project.ops.squared_relu"]
    assert (process.wait(), out, err) == (0, f"{names}\n", "")
    assert not folder.exists()


@needs_compiler
def test_a_library_is_found_again_until_something_changes(sources, folder, monkeypatch):
    first = build("tiny")
    changed = first.stat().st_mtime_ns
    assert build("tiny") == first
    assert first.stat().st_mtime_ns == changed
    assert first.parent == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (sources / "shared.h").write_text("// what it may include\n")
    second = build("tiny")
    (sources / "tiny.cpp").write_text("int tiny() { return 2; }\n")
    third = build("tiny")
    monkeypatch.setattr(builder, "COMMON", [*builder.COMMON, "-DX"])
    fourth = build("tiny")
    monkeypatch.setattr(torch, "__version__", "0.0")
    assert len({first, second, third, fourth, build("tiny")}) == 5


@needs_compiler
def test_a_long_build_is_announced_and_a_short_one_is_not(sources, folder, said, tmp_path, monkeypatch):
    build("tiny")
    assert said == []
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 0.5\nexec {COMPILER} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    monkeypatch.setattr(builder, "SILENT_SECONDS", 0.05)
    build("tiny")
    assert said == ["Building tiny.cpp; later runs find it built."]


@needs_compiler
def test_a_source_that_does_not_compile(sources, folder, said, capsys):
    (sources / "broken.cpp").write_text("int broken( { return 1; }\n")
    assert not load("broken")
    assert not load("broken")
    [line] = said
    assert line.startswith("broken: broken.cpp does not compile (")
    assert "broken.cpp:1:" in line
    assert line.endswith("python -m project.ops.build); plain PyTorch computes the same instead, more slowly")
    assert not list(folder.glob("broken*"))
    assert main() == 1
    printed = capsys.readouterr()
    assert "tiny-cpu-" in printed.out
    assert printed.err.count("\n") > 2  # all that the compiler says
    assert main(["tiny"]) == 0


def test_a_library_that_is_none(sources, folder, said, monkeypatch, tmp_path):
    (tmp_path / "none.so").write_text("nothing")
    monkeypatch.setattr(builder, "build", lambda *_: tmp_path / "none.so")
    assert not load("none")
    assert "plain PyTorch computes the same" in said[0]


@needs_compiler
def test_a_folder_that_others_can_write_to_is_refused(sources, folder, said):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(NotBuilt, match="holds code that is run, and others can write to it"):
        build("tiny")
    folder.chmod(0o700)
    assert build("tiny").is_file()


@needs_compiler
def test_a_folder_that_cannot_be_made(sources, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "file"))
    with pytest.raises(NotBuilt, match=r"can't be written \(.*file.*\); set TORCH_EXTENSIONS_DIR to another folder"):
        build("tiny")


@pytest.mark.parametrize("device", ["mps", "cuda"])
def test_a_device_without_a_kernel(sources, device):
    with pytest.raises(NotBuilt, match=f"there is no kernel for {device}"):
        build("tiny", device)


CUDA = """
import sys
import torch

for library in sys.argv[1:]:
    torch.ops.load_library(library)
for operator in ("project::masked_softmax", "project::masked_softmax_backward"):
    assert torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CUDA")
"""


@needs_compiler
@pytest.mark.matrix
def test_the_kernel_for_gpus_compiles_and_loads(tmp_path, folder):
    """With CUDA's compiler, for which no GPU is needed."""
    try:
        libraries = [build("masked_softmax"), build("masked_softmax", "cuda")]
    except NotBuilt as error:
        if "does not compile" in str(error):
            pytest.fail(error.output)
        pytest.skip(str(error))
    (tmp_path / "cuda.py").write_text(CUDA)
    process = Python("cuda.py", *libraries, cwd=tmp_path)
    _, err = process.communicate()
    assert process.wait() == 0, err
