"""Attention written out and fused, against each other and against what the paper says of it; the
block around it.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from litlab.errors import UserError
from project.networks.attention import (
    EncoderBlock,
    MultiHeadAttention,
    causal_mask,
    math_attention,
    plain_masked_softmax,
)

MASKS = {
    "causal and padding": causal_mask(4, 5) & torch.tensor([True, False, True, True, False]),
    "additive": torch.linspace(-3, 3, 60).view(3, 4, 5),
    "a query without keys": (torch.arange(4) != 2)[:, None].expand(4, 5),
}


def test_a_query_sees_no_later_key():
    assert causal_mask(2, 3).tolist() == [[True, False, False], [True, True, False]]


def as_torch(projection):
    """Order the rows of queries, keys and values as torch does: all queries, all keys, all
    values.
    """
    return projection.unflatten(0, (4, 3, -1)).transpose(0, 1).flatten(0, 2)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_the_written_function_is_that_of_torch(mask):
    """Values and gradients, also of a mask that is learned."""
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, length, 6, requires_grad=True) for length in (4, 5, 5)]
    if mask.is_floating_point():
        inputs.append(mask.clone().requires_grad_())
    arguments = inputs if len(inputs) == 4 else [*inputs, mask]
    theirs, ours = F.scaled_dot_product_attention(*arguments), math_attention(*arguments)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    theirs, ours = (torch.autograd.grad(each.square().sum(), inputs) for each in (theirs, ours))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("norm", "form"), [("pre", "sdpa"), ("post", "math")])
def test_the_encoder_block_is_that_of_torch(norm, form):
    """On three texts of 7, 4 and 1 tokens in a batch of 7."""
    torch.manual_seed(0)
    x, real = torch.randn(3, 7, 24), torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    attention = partial(MultiHeadAttention, implementation=form)
    ours = EncoderBlock(
        24, num_heads=4, dim_feedforward=40, dropout=0.5, norm=norm, attention=attention
    ).eval()
    theirs = nn.TransformerEncoderLayer(
        24, 4, 40, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm == "pre"
    )
    names = {
        "attention.queries_keys_values.": "self_attn.in_proj_",
        "attention.output": "self_attn.out_proj",
        "feedforward.0": "linear1",
        "feedforward.3": "linear2",
        "norm": "norm",
    }
    theirs.load_state_dict(
        {
            name.replace(own, torchs): as_torch(value) if "queries" in name else value
            for name, value in ours.state_dict().items()
            for own, torchs in names.items()
            if own in name
        }
    )
    theirs.train()  # the shortcut that torch takes in evaluation needs no masked rows
    expected = theirs(x, x.new_zeros(7, 7), src_key_padding_mask=torch.where(real, 0.0, -torch.inf))
    torch.testing.assert_close(ours(x, real)[real], expected[real], rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", ["sdpa", "math"])
def test_cross_attention_takes_keys_and_values_of_another_sequence(form):
    attention, x = MultiHeadAttention(24, 4, implementation=form).eval(), torch.randn(2, 7, 24)
    torch.testing.assert_close(attention(x[:, :3], x), attention(x)[:, :3])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_drops_what_both_parts_add(norm):
    x, real = torch.randn(2, 5, 24), torch.ones(2, 5, dtype=torch.bool)
    block = EncoderBlock(24, num_heads=4, dim_feedforward=40, dropout=1.0, norm=norm)
    expected = x if norm == "pre" else nn.functional.layer_norm(x, (24,))
    torch.testing.assert_close(block(x, real), expected, rtol=1e-3, atol=1e-3)


class HalvedSoftmax(nn.Module):
    def forward(self, scores, mask, scale):
        return plain_masked_softmax(scores, mask, scale) / 2


def test_a_softmax_of_ones_own_takes_the_place_of_the_written_one():
    torch.manual_seed(0)
    attention = MultiHeadAttention(24, 4, implementation="math")
    own = MultiHeadAttention(24, 4, implementation="math", softmax=HalvedSoftmax)
    own.load_state_dict(attention.state_dict())
    for module in (attention, own):
        nn.init.zeros_(module.output.bias)
    x = torch.randn(2, 5, 24)
    torch.testing.assert_close(2 * own(x), attention(x))

    # torch's kernels would leave it out
    with pytest.raises(UserError, match=r"^model.network.attention.softmax: sdpa .* to math$"):
        MultiHeadAttention(24, 4, softmax=HalvedSoftmax)
