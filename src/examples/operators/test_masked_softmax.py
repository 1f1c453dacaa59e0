"""The masked softmax against its composition: values, derivatives, vmap, compiler; what it refuses.

On a GPU, too: `make test-gpu`.
"""

import os
import shutil
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from examples.operators import masked_softmax as module
from examples.operators.build import load
from examples.operators.masked_softmax import is_built, masked_softmax
from examples.operators.squared_relu import SquaredReLU
from project.networks.attention import plain_masked_softmax

TOOLS = ["ninja", os.environ.get("CXX", "c++").split()[0]]
pytestmark = [
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="needs ninja and a C++ compiler"),
    # torch's opcheck
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
PADDING = torch.tensor([[True] * 5, [True, True, False, False, False]])[:, None, None, :]
MASKS = {
    "none": None,
    "padding": PADDING,
    "causal": torch.ones(4, 5, dtype=torch.bool).tril(),
    "nothing": torch.zeros(1, dtype=torch.bool),
}
CUDA = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=CUDA)])
def device(request):
    """Where the operator computes, which must not be its replacement."""
    assert is_built(request.param)
    return request.param


def _scores(*shape: int) -> Tensor:
    return torch.randn(shape or (2, 3, 4, 5), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MASKS)
def test_values_and_derivatives(name, device):
    mask = None if MASKS[name] is None else MASKS[name].to(device)
    scores = _scores().to(device, torch.float64).requires_grad_()
    softmax = partial(masked_softmax, mask=mask, scale=0.7)
    torch.testing.assert_close(softmax(scores), plain_masked_softmax(scores, mask, 0.7))
    assert gradcheck(softmax, scores, check_batched_grad=True)
    assert gradgradcheck(softmax, scores)


@pytest.mark.parametrize("keys", [1, 32, 33, 400])
def test_rows_of_any_length_and_layout(keys, device):
    scores = 20 * _scores(keys, 50, 2, 3).to(device).permute(3, 2, 1, 0)
    mask = _scores(3, 1, 1, keys).to(device) > -1
    exact = plain_masked_softmax(scores.double(), mask, 0.5)
    torch.testing.assert_close(
        masked_softmax(scores, mask, 0.5).double(), exact, rtol=1e-5, atol=1e-30
    )
    half = scores.bfloat16()  # computed with in float32
    assert masked_softmax(half, mask).equal(masked_softmax(half.float(), mask).bfloat16())


def test_numbers_at_the_edge():
    scores = torch.tensor([[-torch.inf, 1.0, 2.0], [-torch.inf] * 3, [torch.nan, 1.0, 2.0]])
    for mask in (None, torch.tensor([False, True, True])):
        result, expected = masked_softmax(scores, mask), plain_masked_softmax(scores, mask)
        torch.testing.assert_close(result, expected, equal_nan=True, rtol=2e-6, atol=1e-37)


def test_torchs_checks_of_an_operator():
    operators, check = torch.ops.examples, torch.library.opcheck
    transposed = _scores().mT.clone().mT.requires_grad_()
    grad, weights = _scores().requires_grad_(), _scores().softmax(-1).requires_grad_()
    check(operators.masked_softmax.default, (transposed, PADDING.expand(2, 3, 4, 5), 0.7))
    check(operators.masked_softmax_backward.default, (grad, weights, 0.7))


def test_vmap_is_a_loop():
    mapped = torch.func.vmap(masked_softmax, in_dims=(1, None))(_scores(), PADDING[:, 0])
    alone = [plain_masked_softmax(one, PADDING[:, 0]) for one in _scores().unbind(1)]
    torch.testing.assert_close(mapped, torch.stack(alone))


# torch's own, at the first dual number
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")
def test_forward_mode_is_that_of_the_composition():
    """torch.library has no place for such a rule: without help the derivative would be 0, and
    nothing would say so.
    """
    tangents = []
    with forward_ad.dual_level():
        for softmax in (masked_softmax, plain_masked_softmax):
            scores = forward_ad.make_dual(_scores(), _scores().flip(0))
            tangents.append(forward_ad.unpack_dual(softmax(scores, PADDING)).tangent)
    torch.testing.assert_close(*tangents)


def test_where_it_can_not_be_built_one_line_says_so(monkeypatch, capsys):
    def fail(*_: str) -> None:
        raise RuntimeError("ninja failed\nsh: c++: not found")

    monkeypatch.setattr("examples.operators.build.build", fail)
    monkeypatch.setattr("lightning.pytorch.utilities.rank_zero_info", print)
    monkeypatch.setattr(module, "load", load.__wrapped__)
    assert masked_softmax(_scores(), PADDING).equal(plain_masked_softmax(_scores(), PADDING))
    assert capsys.readouterr().out.startswith(
        "masked_softmax: sh: c++: not found; plain PyTorch computes the same"
    )


def test_the_kernel_reads_no_memory_that_is_not_there():
    ones = torch.ones(2, 3)
    assert is_built("cpu")
    for scores, mask in ((ones.long(), None), (ones, ones), (ones, ones[0].bool())):
        with pytest.raises(RuntimeError, match=r"needed|must"):
            torch.ops.examples.masked_softmax(scores, mask, 1.0)


@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.matrix)]
)
def test_compiles_to_one_graph_with_both_passes(backend):
    """With the other operator, which, computed in place, once had a gradient of 0 when compiled."""

    def attend(x, mask):
        hidden = SquaredReLU()(2 * x)
        return masked_softmax(hidden @ hidden.mT, mask, 0.4) @ hidden

    torch._dynamo.reset()
    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend=backend)
    for count, length in ((2, 5), (3, 7)):
        x, mask = _scores(count, length, 6).requires_grad_(), _scores(count, 1, length) > -1
        outputs = [each(x, mask) for each in (attend, compiled)]
        torch.testing.assert_close(*outputs)
        gradients = [torch.autograd.grad(output.square().sum(), x)[0] for output in outputs]
        torch.testing.assert_close(*gradients)
    torch._dynamo.reset()
