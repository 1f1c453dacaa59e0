"""Both forms of attention, against each other and against what the paper says of them."""

import math

import pytest
import torch
from torch import nn

from project.networks.attention import EncoderBlock, MultiHeadAttention, math_attention


@pytest.fixture
def tokens():
    """Three texts of 7, 4 and 1 tokens in a batch of 7, and which tokens are real."""
    torch.manual_seed(0)
    real = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    return torch.randn(3, 7, 24), real


def _same_weights(make) -> list[nn.Module]:
    modules = []
    for form in ("sdpa", "math"):
        torch.manual_seed(1)
        modules.append(make(form).eval())
    return modules


def test_written_and_fused_attention_are_the_same(tokens):
    x, real = tokens
    fused, written = _same_weights(
        lambda implementation: MultiHeadAttention(24, num_heads=4, implementation=implementation)
    )
    torch.testing.assert_close(written(x, real)[0], fused(x, real)[0], rtol=0, atol=1e-5)
    gradients = []
    for attention in (fused, written):
        attention(x, real)[0].square().sum().backward()
        gradients.append(attention.queries_keys_values.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-4)


def test_the_written_form_returns_its_weights_and_padding_has_none(tokens):
    x, real = tokens
    fused, written = _same_weights(
        lambda implementation: MultiHeadAttention(24, num_heads=4, implementation=implementation)
    )
    assert fused(x, real)[1] is None
    weights = written(x, real)[1]
    assert weights.shape == (3, 4, 7, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, 7))
    padding = ~real[:, None, None, :].expand_as(weights)
    assert weights[padding].eq(0).all()
    assert weights[~padding].gt(0).all()


def test_attention_by_hand():
    """One query along the first key: its weights are the softmax of (2, 0) / sqrt(4), the third key is masked."""
    queries = torch.tensor([[[[2.0, 0, 0, 0]]]])
    keys = torch.tensor([[[[1.0, 0, 0, 0], [0, 1, 0, 0], [9, 9, 9, 9]]]])
    values = torch.tensor([[[[1.0], [10.0], [100.0]]]])
    attended, weights = math_attention(queries, keys, values, torch.tensor([[[[True, True, False]]]]))
    first = math.e / (math.e + 1)
    torch.testing.assert_close(weights.flatten(), torch.tensor([first, 1 - first, 0.0]))
    assert attended.item() == pytest.approx(first * 1 + (1 - first) * 10)


@pytest.mark.parametrize("form", ["sdpa", "math"])
def test_multi_head_attention_is_that_of_torch(tokens, form):
    x, real = tokens
    ours, theirs = (
        MultiHeadAttention(24, num_heads=4, implementation=form),
        nn.MultiheadAttention(24, 4, batch_first=True),
    )
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.queries_keys_values.weight)
        theirs.in_proj_bias.copy_(ours.queries_keys_values.bias)
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    expected, _ = theirs(x, x, x, key_padding_mask=~real)
    torch.testing.assert_close(ours(x, real)[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_encoder_block_is_that_of_torch(tokens, norm):
    x, real = tokens
    ours = EncoderBlock(24, num_heads=4, dim_feedforward=40, dropout=0.5, norm=norm).eval()
    theirs = nn.TransformerEncoderLayer(
        24, 4, 40, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm == "pre"
    )
    names = {
        "attention.queries_keys_values.weight": "self_attn.in_proj_weight",
        "attention.queries_keys_values.bias": "self_attn.in_proj_bias",
        "attention.output": "self_attn.out_proj",
        "feedforward.0": "linear1",
        "feedforward.2": "linear2",
    }
    state = {}
    for name, value in ours.state_dict().items():
        old = next((old for old in names if name.startswith(old)), "")
        state[names[old] + name[len(old) :] if old else name] = value
    theirs.load_state_dict(state)
    theirs.train()  # the shortcut that torch takes in evaluation needs no masked rows
    expected = theirs(x, x.new_zeros(7, 7), src_key_padding_mask=torch.where(real, 0.0, -torch.inf))
    torch.testing.assert_close(ours(x, real)[real], expected[real], rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_drops_what_both_parts_add(norm):
    """With all of it dropped, a block adds nothing: x stays, or is normalised twice."""
    x, real = torch.randn(2, 5, 24), torch.ones(2, 5, dtype=torch.bool)
    block = EncoderBlock(24, num_heads=4, dim_feedforward=40, dropout=1.0, norm=norm)
    expected = x if norm == "pre" else nn.functional.layer_norm(x, (24,))
    torch.testing.assert_close(block(x, real), expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(block.eval()(x, real), expected, atol=1e-2)
