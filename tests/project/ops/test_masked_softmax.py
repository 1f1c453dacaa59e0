"""The masked softmax against its composition: values, derivatives, vmap, compiler, export; what it refuses."""

import os
import shutil

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from litlab.errors import UserError
from litlab.export.operators import check_operators, operators_of, operators_of_script
from project.ops.build import build
from project.ops.masked_softmax import is_built, masked_softmax, plain_masked_softmax
from project.ops.squared_relu import SquaredReLU
from tests.processes import Python

COMPILERS = [os.environ["CXX"].split()[0]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
pytestmark = [
    pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # torch's opcheck
]
PADDING = torch.tensor([[True] * 5, [True, True, False, False, False]])[:, None, None, :]
MASKS = {
    "none": None,
    "padding": PADDING,
    "causal": torch.ones(4, 5, dtype=torch.bool).tril(),
    "of each head": torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1)) > 0.5,
    "of keys": torch.tensor([True, False, True, True, False]),
    "of queries": torch.tensor([True, False, True, True])[:, None],
    "a query without keys": torch.ones(4, 5, dtype=torch.bool).index_fill(0, torch.tensor(2), False),
    "nothing": torch.zeros(1, dtype=torch.bool),
    "transposed": (torch.rand(5, 4, generator=torch.Generator().manual_seed(2)) > 0.5).mT,
}
EDGES = [
    [-torch.inf, 1.0, 2.0],
    [-torch.inf] * 3,
    [torch.inf, 1.0, 2.0],
    [torch.nan, 1.0, 2.0],
    [torch.nan, -torch.inf, -torch.inf],
    [3e38, -3e38, 3e38],
    [1e4, 1e4 - 80, 1e4 - 200],
    [0.0, -0.0, 1e-40],
]
with_masks = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())


def _scores(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*(shape or (2, 3, 4, 5)), dtype=dtype, generator=torch.Generator().manual_seed(0))


def test_it_is_the_operator_that_is_tested():
    assert is_built("cpu")


@with_masks
def test_values_and_gradients_are_those_of_the_composition(mask):
    results = []
    for softmax in (masked_softmax, plain_masked_softmax):
        scores = _scores().requires_grad_()
        weights = softmax(scores, mask, 0.7)
        direction = torch.linspace(-1, 2, weights.numel()).view_as(weights)
        results.append((weights, *torch.autograd.grad((weights * direction).sum(), scores)))
    torch.testing.assert_close(*results)
    if mask is not None:
        assert results[0][0].masked_select(~mask).eq(0).all()


@pytest.mark.parametrize("keys", [1, 7, 8, 33, 400])
def test_rows_of_any_length(keys):
    scores, mask = 20 * _scores(3, 2, 50, keys), (_scores(3, 1, 1, keys) > -1)
    exact = plain_masked_softmax(scores.double(), mask, 0.5)
    torch.testing.assert_close(masked_softmax(scores, mask, 0.5).double(), exact, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", EDGES, ids=str)
def test_numbers_at_the_edge(row, dtype):
    scores = torch.tensor([row, [0.0, 1.0, 2.0]], dtype=dtype)
    for mask in (None, torch.tensor([True, True, False])):
        result, expected = masked_softmax(scores, mask), plain_masked_softmax(scores, mask)
        torch.testing.assert_close(result, expected, equal_nan=True, rtol=2e-6, atol=1e-37)


def test_what_is_masked_does_not_count_whatever_it_is():
    scores = torch.tensor([[torch.nan, 1.0, torch.inf, 2.0]])
    weights = masked_softmax(scores, torch.tensor([False, True, False, True]))
    torch.testing.assert_close(weights, torch.tensor([[0.0, 0.2689414, 0.0, 0.7310586]]))


def test_any_layout_in_memory():
    scores = _scores(5, 4, 3, 2).permute(3, 2, 1, 0)
    mask = (_scores(5, 4) > 0).mT
    assert masked_softmax(scores, mask).is_contiguous()
    torch.testing.assert_close(masked_softmax(scores, mask), plain_masked_softmax(scores, mask))
    sliced = _scores(2, 3, 4, 10)[..., ::2]
    torch.testing.assert_close(masked_softmax(sliced, mask[:, ::1]), plain_masked_softmax(sliced, mask))
    # The gradient of a sum is one number, expanded.
    x = scores.clone().requires_grad_()
    (masked_softmax(x) * 2).sum().backward()
    assert x.grad.abs().max() < 1e-6


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_empty_tensors(shape):
    scores = torch.empty(shape, requires_grad=True)
    for mask in (None, torch.ones(shape[-1], dtype=torch.bool)):
        weights = masked_softmax(scores, mask)
        assert weights.shape == shape
        weights.sum().backward()
        assert scores.grad.shape == shape


def test_the_number_of_threads_changes_nothing():
    scores, mask = _scores(8, 4, 60, 60), PADDING.new_ones(60, 60).tril()
    alone = masked_softmax(scores, mask)
    torch.set_num_threads(2)
    assert masked_softmax(scores, mask).equal(alone)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_numbers_are_computed_with_in_32(dtype):
    scores = _scores(dtype=dtype)
    weights = masked_softmax(scores, PADDING, 0.7)
    assert weights.equal(masked_softmax(scores.float(), PADDING, 0.7).to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert masked_softmax(scores, PADDING, 0.7).equal(weights)


@with_masks
def test_derivatives_of_the_first_and_second_order(mask):
    scores = _scores(dtype=torch.float64).requires_grad_()

    def weights(scores):
        return masked_softmax(scores, mask, 0.7)

    assert gradcheck(weights, scores, check_batched_grad=mask is MASKS["padding"])
    assert gradgradcheck(weights, scores, check_batched_grad=mask is MASKS["padding"])


def test_torchs_checks_of_an_operator():
    forward, backward = torch.ops.project.masked_softmax.default, torch.ops.project.masked_softmax_backward.default
    scores = _scores()
    for inputs in (
        (scores, None, 1.0),
        (scores.clone().requires_grad_(), PADDING, 0.7),
        (scores.mT.clone().mT.requires_grad_(), None, 0.7),
    ):
        assert set(torch.library.opcheck(forward, inputs).values()) == {"SUCCESS"}
    pair = (scores.clone().requires_grad_(), scores.softmax(-1).requires_grad_(), 0.7)
    assert set(torch.library.opcheck(backward, pair).values()) == {"SUCCESS"}


@pytest.mark.parametrize("in_dims", [(0, 0), (1, 1), (0, None), (None, 1), (3, 0)], ids=str)
def test_vmap_is_a_loop(in_dims):
    scores = _scores(3, 3, 4, 3) if in_dims[0] is not None else _scores(3, 4, 5)
    keys = scores.shape[-1] if in_dims[0] != 3 else 4
    mask = _scores(*((3, keys) if in_dims[1] == 0 else (keys, 3) if in_dims[1] == 1 else (keys,))) > -0.5
    mapped = torch.func.vmap(masked_softmax, in_dims=in_dims)(scores, mask)
    slices = zip(
        [scores] * 3 if in_dims[0] is None else scores.unbind(in_dims[0]),
        [mask] * 3 if in_dims[1] is None else mask.unbind(in_dims[1]),
        strict=True,
    )
    torch.testing.assert_close(mapped, torch.stack([plain_masked_softmax(*pair) for pair in slices]))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")  # torch's own, at the first dual number
def test_forward_mode_is_that_of_the_composition():
    """torch.library has no place for such a rule: without help the derivative would be 0, and nothing would say so."""
    tangents = []
    with forward_ad.dual_level():
        for softmax in (masked_softmax, plain_masked_softmax):
            scores = forward_ad.make_dual(_scores(), _scores().flip(0))
            tangents.append(forward_ad.unpack_dual(softmax(scores, PADDING)).tangent)
    assert tangents[0].abs().max() > 0.01
    torch.testing.assert_close(*tangents)


@pytest.mark.parametrize(
    ("scores", "mask", "error", "says"),
    [
        (torch.ones(2, 3, dtype=torch.int64), None, TypeError, "scores are torch.int64 of 2 dimensions"),
        (torch.tensor(1.0), None, TypeError, "scores are torch.float32 of 0 dimensions"),
        (torch.ones(2, 3), torch.ones(2, 3), TypeError, "mask is torch.float32: it must be torch.bool"),
        (torch.ones(2, 3), torch.ones(2, dtype=torch.bool), ValueError, r"mask has shape \(2,\): .* to \(2, 3\)"),
        (torch.ones(3), torch.ones(1, 3, dtype=torch.bool), ValueError, r"mask has shape \(1, 3\)"),
        (torch.ones(3), torch.ones(3, dtype=torch.bool, device="meta"), ValueError, "mask is on meta"),
    ],
)
def test_refusals(scores, mask, error, says):
    with pytest.raises(error, match=says):
        masked_softmax(scores, mask)


@pytest.mark.parametrize(
    ("scores", "mask", "says"),
    [
        (torch.ones(2, 3, dtype=torch.int64), None, "float32 or float64 is needed"),
        (torch.ones(2, 3, dtype=torch.bfloat16), None, "float32 or float64 is needed"),
        (torch.ones(2, 3), torch.ones(2, 3), "the mask must be boolean"),
        (torch.ones(2, 3), torch.ones(2, dtype=torch.bool), "as many keys as the scores"),
        (torch.ones(2, 3), torch.ones(3, 3, dtype=torch.bool), "does not broadcast"),
        (torch.ones(*[1] * 18), torch.ones(1, dtype=torch.bool), "more than 17 dimensions"),
    ],
)
def test_the_kernel_itself_reads_no_memory_that_is_not_there(scores, mask, says):
    with pytest.raises(RuntimeError, match=says):
        torch.ops.project.masked_softmax(scores, mask, 1.0)


class _Network(nn.Module):
    """Both operators between two linear layers; rows of the batch attend to each other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.activation, self.last = nn.Linear(6, 8), SquaredReLU(), nn.Linear(8, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        hidden = self.activation(self.first(x))
        return self.last(masked_softmax(hidden @ hidden.mT, mask[:, None, :], 0.4) @ hidden)


@pytest.fixture
def network() -> _Network:
    torch.manual_seed(0)
    return _Network()


def _batch(count: int, length: int) -> tuple[Tensor, Tensor]:
    return _scores(count, length, 6), torch.arange(length) < torch.arange(count)[:, None] + 1


def test_compiles_to_one_graph_with_both_passes(network):
    torch._dynamo.reset()
    compiled = torch.compile(network, fullgraph=True, dynamic=True)
    for batch in (_batch(2, 5), _batch(3, 7)):
        outputs = [each(*batch) for each in (network, compiled)]
        torch.testing.assert_close(*outputs)
        torch.testing.assert_close(
            *[torch.autograd.grad(output.square().sum(), list(network.parameters())) for output in outputs]
        )
    torch._dynamo.reset()


DEPLOYED = """
import sys
import torch

library, package, batch, output = sys.argv[1:]
torch.ops.load_library(library)
result = torch._inductor.aoti_load_package(package)(*torch.load(batch))
torch.save(result, output)
assert not [name for name in sys.modules if name.startswith("project.")]
"""


def _exported(network):
    count, length = torch.export.Dim("count", min=2), torch.export.Dim("length", min=2, max=64)
    shapes = ({0: count, 1: length}, {0: count, 1: length})
    return torch.export.export(network.eval(), _batch(2, 5), dynamic_shapes=shapes)


@pytest.mark.filterwarnings(r"ignore:`torch.jit.\w+` is deprecated", "ignore::torch.jit.TracerWarning")
def test_an_exported_graph_calls_the_operator(network):
    exported = _exported(network)
    batch = _batch(4, 9)
    torch.testing.assert_close(exported.module()(*batch), network(*batch))
    with pytest.raises(UserError, match="calls project::masked_softmax, an operator of its own"):
        check_operators(operators_of(exported))  # of the command, whose folders bring no library along
    script = torch.jit.trace(network, batch, check_trace=False)
    with pytest.raises(UserError, match="calls project::masked_softmax, an operator of its own"):
        check_operators(operators_of_script(script))


@pytest.mark.matrix
def test_runs_ahead_of_time_compiled_where_only_the_library_is(network, tmp_path):
    """In a process that imports nothing of the project: the package, and the library with the operator."""
    batch = _batch(4, 9)
    expected = network.eval()(*batch)
    package = torch._inductor.aoti_compile_and_package(_exported(network), package_path=str(tmp_path / "network.pt2"))
    torch.save(batch, tmp_path / "batch.pt")
    (tmp_path / "deployed.py").write_text(DEPLOYED)
    process = Python("deployed.py", build("masked_softmax"), package, tmp_path / "batch.pt", "result.pt", cwd=tmp_path)
    _, err = process.communicate()
    assert process.wait() == 0, err
    torch.testing.assert_close(torch.load(tmp_path / "result.pt"), expected.detach())
