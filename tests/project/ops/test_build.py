"""Kernels are built at the first use; where they can't be, one line says why and plain PyTorch computes the same."""

import shutil

import pytest

from project.ops import build as builder
from project.ops.build import build, load
from tests.processes import Python
from tests.project.ops.test_masked_softmax import needs_compiler

SOFTMAX = """
import torch
from project.ops.masked_softmax import masked_softmax

masked_softmax = torch.compile(masked_softmax, fullgraph=True, backend="eager")
scores = torch.tensor([[0.0, 0.0, 5.0], [1.0, 1.0, 1.0]])
mask = torch.tensor([[True, True, False], [False, False, False]])
print(masked_softmax(scores, mask).tolist())
"""
RIGHT = "[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]\n"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))


@pytest.fixture
def said(monkeypatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr("lightning.pytorch.utilities.rank_zero_info", lines.append)
    return lines


@needs_compiler
def test_without_a_compiler_one_line_says_so_and_the_result_is_right(tmp_path):
    (tmp_path / "script.py").write_text(SOFTMAX)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ninja").symlink_to(str(shutil.which("ninja")))
    process = Python("script.py", cwd=tmp_path, environment={"PATH": tmp_path / "bin"})
    out, err = process.communicate()
    assert (process.wait(), out) == (0, RIGHT)
    assert err.startswith("masked_softmax: ")
    assert err.endswith("c++: not found; plain PyTorch computes the same instead, more slowly\n")
    assert err.count("\n") == 1


@needs_compiler
def test_a_source_that_does_not_compile(tmp_path, said, monkeypatch):
    monkeypatch.setattr(builder, "SOURCES", tmp_path)
    (tmp_path / "broken.cpp").write_text("int broken( { return 1; }\n")
    assert not load("broken")
    assert not load("broken")
    [line] = said
    assert line.startswith(f"broken: {tmp_path}/broken.cpp:1:")
    assert line.endswith("; plain PyTorch computes the same instead, more slowly")


@needs_compiler
@pytest.mark.matrix
def test_the_kernel_for_gpus_compiles_and_loads(monkeypatch):
    """With CUDA's compiler, for which no GPU is needed."""
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is None or torch.version.cuda is None:
        pytest.skip("needs nvcc and a torch with CUDA")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    build("masked_softmax")
    build("masked_softmax", "cuda")
    for operator in ("project::masked_softmax", "project::masked_softmax_backward"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CUDA")
