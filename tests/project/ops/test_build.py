"""Where a kernel can't be built, one line says why and plain PyTorch computes the same, compiled or not."""

import shutil

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


@needs_compiler
def test_without_a_compiler_one_line_says_so_and_the_result_is_right(tmp_path):
    (tmp_path / "script.py").write_text(SOFTMAX)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ninja").symlink_to(str(shutil.which("ninja")))
    process = Python(
        "script.py", cwd=tmp_path, environment={"PATH": tmp_path / "bin", "TORCH_EXTENSIONS_DIR": tmp_path}
    )
    out, err = process.communicate()
    assert (process.wait(), out) == (0, RIGHT)
    assert err.startswith("masked_softmax: ")
    assert err.endswith("c++: not found; plain PyTorch computes the same instead, more slowly\n")
    assert err.count("\n") == 1
