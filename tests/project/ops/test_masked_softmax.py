"""The masked softmax against its composition: values, derivatives, vmap, compiler, export; what it refuses."""

import os
import shutil
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from project.ops.masked_softmax import is_built, masked_softmax, plain_masked_softmax
from project.ops.squared_relu import SquaredReLU

TOOLS = ["ninja", os.environ.get("CXX", "c++").split()[0]]
needs_compiler = pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="needs ninja and a C++ compiler")
pytestmark = [
    needs_compiler,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # torch's opcheck
]
PADDING = torch.tensor([[True] * 5, [True, True, False, False, False]])[:, None, None, :]
MASKS = {
    "none": None,
    "padding": PADDING,
    "causal": torch.ones(4, 5, dtype=torch.bool).tril(),
    "of keys": torch.tensor([True, False, True, True, False]),
    "of queries": torch.tensor([True, False, True, True])[:, None],
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
]
with_masks = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())


def _scores(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*(shape or (2, 3, 4, 5)), dtype=dtype, generator=torch.Generator().manual_seed(0))


def test_it_is_the_operator_that_is_tested():
    assert is_built("cpu")


@with_masks
def test_values_and_derivatives(mask):
    torch.testing.assert_close(masked_softmax(_scores(), mask, 0.7), plain_masked_softmax(_scores(), mask, 0.7))
    scores = _scores(dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda scores: masked_softmax(scores, mask, 0.7), scores)
    assert gradgradcheck(lambda scores: masked_softmax(scores, mask, 0.7), scores)


@pytest.mark.parametrize("keys", [0, 1, 7, 33, 400])
def test_rows_of_any_length_and_layout(keys):
    scores, mask = 20 * _scores(keys, 50, 2, 3).permute(3, 2, 1, 0), _scores(3, 1, 1, keys) > -1
    exact = plain_masked_softmax(scores.double(), mask, 0.5) if keys else scores.double()
    torch.testing.assert_close(masked_softmax(scores, mask, 0.5).double(), exact, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_at_the_edge(dtype):
    scores = torch.tensor(EDGES, dtype=dtype)
    for mask in (None, torch.tensor([True, True, False]), torch.tensor([False, True, True])):
        result, expected = masked_softmax(scores, mask), plain_masked_softmax(scores, mask)
        torch.testing.assert_close(result, expected, equal_nan=True, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_numbers_are_computed_with_in_32(dtype):
    scores = _scores(dtype=dtype)
    assert masked_softmax(scores, PADDING, 0.7).equal(masked_softmax(scores.float(), PADDING, 0.7).to(dtype))


def test_torchs_checks_of_an_operator():
    operators = torch.ops.project
    masks, weights = (None, PADDING.expand(2, 3, 4, 5)), _scores().softmax(-1)
    for scores, mask in product((_scores(), _scores().mT.clone().mT.requires_grad_()), masks):
        checked = torch.library.opcheck(operators.masked_softmax.default, (scores, mask, 0.7))
        assert set(checked.values()) == {"SUCCESS"}
    pair = (_scores().requires_grad_(), weights.requires_grad_(), 0.7)
    checked = torch.library.opcheck(operators.masked_softmax_backward.default, pair)
    assert set(checked.values()) == {"SUCCESS"}


def test_vmap_is_a_loop():
    mapped = torch.func.vmap(masked_softmax, in_dims=(1, None))(_scores(), PADDING[:, 0])
    expected = torch.stack([plain_masked_softmax(one, PADDING[:, 0]) for one in _scores().unbind(1)])
    torch.testing.assert_close(mapped, expected)


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
    ("scores", "mask", "says"),
    [
        (torch.ones(2, 3, dtype=torch.int64), None, "float32 or float64 is needed"),
        (torch.ones(2, 3), torch.ones(2, 3), "the mask must be boolean"),
        (torch.ones(2, 3), torch.ones(3, dtype=torch.bool), "the mask must have the shape of the scores"),
    ],
)
def test_the_kernel_reads_no_memory_that_is_not_there(scores, mask, says):
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


def _batch(count: int, length: int) -> tuple[Tensor, Tensor]:
    return _scores(count, length, 6), torch.arange(length) < torch.arange(count)[:, None] + 1


def test_compiles_to_one_graph_with_both_passes():
    torch._dynamo.reset()
    network = _Network()
    compiled = torch.compile(network, fullgraph=True, dynamic=True)
    for batch in (_batch(2, 5), _batch(3, 7)):
        outputs = [each(*batch) for each in (network, compiled)]
        torch.testing.assert_close(*outputs)
        gradients = [torch.autograd.grad(output.square().sum(), list(network.parameters())) for output in outputs]
        assert all(gradient.abs().max() > 0 for gradient in gradients[1])  # SquaredReLU in place gave 0 once
        torch.testing.assert_close(*gradients)
    torch._dynamo.reset()
