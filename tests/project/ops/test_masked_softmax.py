"""The masked softmax against its composition: values, derivatives, vmap, compiler; what it refuses.

On a GPU, too: `make test-gpu`; test_build.py compiles that kernel.
"""

import os
import shutil

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
CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=CUDA)])
def device(request):
    """Where the operator computes, which must not be its replacement."""
    assert is_built(request.param)
    return request.param


def _scores(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*(shape or (2, 3, 4, 5)), dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MASKS)
def test_values_and_derivatives(name, device):
    mask = None if MASKS[name] is None else MASKS[name].to(device)
    scores = _scores(dtype=torch.float64).to(device).requires_grad_()
    torch.testing.assert_close(masked_softmax(scores, mask, 0.7), plain_masked_softmax(scores, mask, 0.7))
    assert gradcheck(lambda scores: masked_softmax(scores, mask, 0.7), scores)
    assert gradgradcheck(lambda scores: masked_softmax(scores, mask, 0.7), scores)


@pytest.mark.parametrize("keys", [1, 31, 32, 33, 400])
def test_rows_of_any_length_and_layout(keys, device):
    scores = 20 * _scores(keys, 50, 2, 3).to(device).permute(3, 2, 1, 0)
    mask = _scores(3, 1, 1, keys).to(device) > -1
    exact = plain_masked_softmax(scores.double(), mask, 0.5)
    torch.testing.assert_close(masked_softmax(scores, mask, 0.5).double(), exact, rtol=1e-5, atol=1e-30)
    assert masked_softmax(scores[..., :0]).shape == (3, 2, 50, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=CUDA)], indirect=True)
def test_another_stream_is_the_one_that_is_used(device):
    scores = torch.randn(64, 100, 1000, device=device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10**8)  # what is in another stream would come before
        result = masked_softmax(scores.mul(2))
    stream.synchronize()
    torch.testing.assert_close(result, plain_masked_softmax(scores * 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_at_the_edge(dtype):
    scores = torch.tensor(EDGES, dtype=dtype)
    for mask in (None, torch.tensor([False, True, True])):
        result, expected = masked_softmax(scores, mask), plain_masked_softmax(scores, mask)
        torch.testing.assert_close(result, expected, equal_nan=True, rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_numbers_are_computed_with_in_32(dtype):
    scores = _scores(dtype=dtype)
    assert masked_softmax(scores, PADDING, 0.7).equal(masked_softmax(scores.float(), PADDING, 0.7).to(dtype))


def test_torchs_checks_of_an_operator():
    operators = torch.ops.project
    weights = _scores().softmax(-1).requires_grad_()
    for operator, inputs in (
        (operators.masked_softmax, (_scores().mT.clone().mT.requires_grad_(), PADDING.expand(2, 3, 4, 5), 0.7)),
        (operators.masked_softmax_backward, (_scores().requires_grad_(), weights, 0.7)),
    ):
        assert set(torch.library.opcheck(operator.default, inputs).values()) == {"SUCCESS"}


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


def test_the_kernel_reads_no_memory_that_is_not_there():
    ones = torch.ones(2, 3)
    for scores, mask in ((ones.long(), None), (ones, ones), (ones, torch.ones(3, dtype=torch.bool))):
        with pytest.raises(RuntimeError, match=r"needed|must"):
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


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.matrix)])
def test_compiles_to_one_graph_with_both_passes(backend):
    torch._dynamo.reset()
    network = _Network()
    compiled = torch.compile(network, fullgraph=True, dynamic=True, backend=backend)
    for batch in (_batch(2, 5), _batch(3, 7)):
        outputs = [each(*batch) for each in (network, compiled)]
        torch.testing.assert_close(*outputs)
        gradients = [torch.autograd.grad(output.square().sum(), list(network.parameters())) for output in outputs]
        assert all(gradient.abs().max() > 0 for gradient in gradients[1])  # SquaredReLU in place gave 0 once
        torch.testing.assert_close(*gradients)
    torch._dynamo.reset()
