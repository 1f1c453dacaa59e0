"""The masked softmax on a GPU, against its composition there: `make test-gpu`. test_build.py compiles its kernel."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from project.ops.masked_softmax import is_built, masked_softmax, plain_masked_softmax
from tests.project.ops.test_masked_softmax import MASKS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: test_build.py compiles the kernel"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # torch's opcheck
]


@pytest.fixture(autouse=True)
def _on_the_gpu():
    """Make tensors there; the kernel must be that of the GPU, not its replacement."""
    with torch.device("cuda"):
        assert is_built("cuda")
        yield


@pytest.mark.parametrize("name", MASKS)
def test_values_and_derivatives(name):
    mask = None if MASKS[name] is None else MASKS[name].cuda()
    scores = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(masked_softmax(scores, mask, 0.7), plain_masked_softmax(scores, mask, 0.7))
    assert gradcheck(lambda scores: masked_softmax(scores, mask, 0.7), scores)
    assert gradgradcheck(lambda scores: masked_softmax(scores, mask, 0.7), scores)


def test_rows_of_any_length_and_layout():
    sizes, dtypes = (1, 31, 32, 33, 1000), (torch.float32, torch.bfloat16, torch.float16)
    for keys, dtype in itertools.product(sizes, dtypes):
        scores, mask = 20 * torch.randn(keys, 50, 2, 3).permute(3, 2, 1, 0), torch.randn(keys) > -1
        exact = plain_masked_softmax(scores.to(dtype).double(), mask, 0.5)
        error = 1e-5 if dtype == torch.float32 else 1e-2
        result = masked_softmax(scores.to(dtype), mask, 0.5)
        torch.testing.assert_close(result.double(), exact, rtol=error, atol=1e-6)
    assert masked_softmax(torch.randn(0, 3)).shape == (0, 3)


def test_torchs_checks_of_an_operator():
    scores = torch.randn(2, 3, 4, 5, requires_grad=True)
    mask = MASKS["padding"].cuda().expand(2, 3, 4, 5)
    checked = torch.library.opcheck(torch.ops.project.masked_softmax.default, (scores, mask, 0.7))
    assert set(checked.values()) == {"SUCCESS"}


def test_another_stream_is_the_one_that_is_used():
    scores = torch.randn(64, 100, 1000)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10**8)  # what is in another stream would come before
        result = masked_softmax(scores.mul(2))
    stream.synchronize()
    torch.testing.assert_close(result, plain_masked_softmax(scores * 2))
