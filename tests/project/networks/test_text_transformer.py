"""The text network: padding never matters, every option does."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from project.networks.attention import MultiHeadAttention
from project.networks.text_transformer import TextTransformer

WRITTEN = partial(MultiHeadAttention, implementation="math")
RECIPE = {"positions": "learned", "stem": 3, "patch": 4, "pooling": ("mean", "max", "attention")}
OPTIONS = [
    {}, {"positions": "learned"}, {"norm": "post"}, {"attention": WRITTEN}, {"stem": 3}, {"stem": 7}, {"patch": 2},
    {"patch": 4}, {"patch": 5}, {"pooling": ("max",)}, {"pooling": ("attention",)},
    {"num_layers": 0}, {"num_layers": 3}, {"norm_class": nn.RMSNorm, "activation": nn.ReLU}, RECIPE,
    {**RECIPE, "norm": "post", "attention": WRITTEN, "positions": "sinusoidal"},
]  # fmt: skip


def _network(**settings) -> TextTransformer:
    torch.manual_seed(0)
    settings = {"embed_dim": 16, "num_heads": 2, "dim_feedforward": 24, "dropout": 0.0, **settings}
    network = TextTransformer(vocab_size=50, max_tokens=21, num_classes=3, **settings)
    nn.init.normal_(network.head.weight)  # logits of size 1, so that a difference shows
    return network


def _text(length: int) -> torch.Tensor:
    return torch.randint(2, 50, (1, length))


def _pad(ids: torch.Tensor, length: int) -> torch.Tensor:
    return F.pad(ids, (0, length - ids.shape[1]))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_padding_never_changes_the_logits(options):
    network = _network(**options).eval()
    texts = [_text(length) for length in (1, 2, 3, 8, 13)]
    alone = torch.cat([network(text) for text in texts])
    assert alone.std(dim=0).min() > 0.1
    for length in (13, 14, 16, 21):
        batch = torch.cat([_pad(text, length) for text in texts])
        torch.testing.assert_close(network(batch), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_token_matters_and_so_does_its_place(options):
    network = _network(**options).eval()
    text = _text(9)
    before = network(text)
    for place in range(9) if options.get("pooling") != ("max",) else ():  # a maximum may be another token's
        changed = text.clone()
        changed[0, place] = 1
        assert (network(changed) - before).abs().max() > 1e-4, place
    if options.get("num_layers") != 0 or "stem" in options:
        assert (network(text.flip(1)) - before).abs().max() > 1e-4


@pytest.mark.parametrize("options", [{}, RECIPE], ids=str)
def test_an_empty_text_gives_numbers_and_leaves_the_others_alone(options):
    network = _network(**options)
    text = _pad(_text(5), 6)
    logits = network(torch.cat([text, torch.zeros_like(text)]))
    torch.testing.assert_close(logits[:1], network(text), rtol=0, atol=1e-5)
    logits.sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())
    assert logits.isfinite().all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_starts_at_the_loss_of_a_guess_and_moves_everything(options):
    torch.manual_seed(0)
    network = TextTransformer(50, 21, 3, embed_dim=16, num_heads=2, **options)
    loss = F.cross_entropy(network(_pad(_text(9), 12)), torch.tensor([1]))
    assert loss.item() == pytest.approx(math.log(3), abs=0.02)
    loss.backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert network.embedding.weight.grad[0].eq(0).all()


def test_embeddings_start_small_and_padding_as_nothing():
    network = TextTransformer(2000, 8, 3)
    assert network.embedding.weight[0].eq(0).all()
    assert network.embedding.weight[1:].std().item() == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize(("patch", "length"), [(1, 21), (2, 11), (4, 6), (7, 3)])
def test_there_is_a_position_for_each_patch_of_the_longest_text(patch, length):
    learned, fixed = (_network(patch=patch, positions=kind) for kind in ("learned", "sinusoidal"))
    assert learned.positions.shape == fixed.positions.shape == (length, 16)
    assert "positions" in dict(learned.named_parameters())
    assert "positions" not in dict(fixed.named_parameters())
    assert "positions" not in fixed.state_dict()  # it can be computed
    assert learned(_text(21)).shape == (1, 3)


def test_sinusoidal_positions_are_of_the_embeddings_size():
    network = _network(embed_dim=64)
    ratio = network.positions.square().mean().sqrt() / network.embedding.weight[1:].std()
    assert ratio.item() == pytest.approx(math.sqrt(0.5), rel=0.05)


def test_pre_norm_ends_with_a_norm_and_post_norm_has_had_it():
    pre, post = (_network(norm=norm, num_layers=2) for norm in ("pre", "post"))
    assert len(list(pre.parameters())) == len(list(post.parameters())) + 2
    for network in (pre, post):
        seen = []
        network.pooling.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
        network(_text(9))
        torch.testing.assert_close(seen[0].mean(dim=2), torch.zeros(1, 9), rtol=0, atol=1e-5)
        torch.testing.assert_close(seen[0].var(dim=2, correction=0), torch.ones(1, 9), rtol=0, atol=1e-2)


def test_written_and_fused_attention_give_the_same_logits():
    fused, written = (_network(**RECIPE, attention=form).eval() for form in (MultiHeadAttention, WRITTEN))
    text = _text(13)
    torch.testing.assert_close(written(text), fused(text), rtol=0, atol=1e-5)
    assert {block.attention.implementation for block in written.blocks} == {"math"}


@pytest.mark.parametrize("name", ["embedding_dropout", "dropout", "head_dropout", "word_dropout"])
def test_each_dropout_is_for_training_only(name):
    network = _network(**{name: 0.5})
    text = _text(9)
    assert not torch.equal(network(text), network(text))
    network.eval()
    assert torch.equal(network(text), network(text))


def test_word_dropout_replaces_real_words():
    network = _network(word_dropout=0.25)
    ids = torch.randint(2, 50, (400, 21)).masked_fill(torch.arange(21) >= 15, 0)
    seen = {}
    network.embedding.register_forward_pre_hook(lambda _, inputs: seen.update(ids=inputs[0]))
    before = ids.clone()
    network(ids)
    assert torch.equal(ids, before)
    replaced = seen["ids"] != ids
    assert seen["ids"][replaced].eq(1).all()
    assert replaced[:, :15].float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert not replaced[:, 15:].any()


def test_a_text_that_is_too_long_is_a_bug():
    network = _network()
    with pytest.raises(ValueError, match="texts of 22 tokens: the network takes 21 at most"):
        network(_text(22))


@pytest.mark.parametrize("options", [{}, RECIPE], ids=str)
def test_half_precision(options):
    network = _network(**options).eval()
    text = _pad(_text(9), 12)
    expected = network(text)
    half = network.to(torch.bfloat16)(text)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.1, atol=0.2)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_waits_for_the_device(training):
    """On the meta device tensors have no values: whatever would fetch one, and stop a GPU for it, fails."""
    network = _network(**RECIPE, word_dropout=0.1).to("meta").train(training)
    assert network(_pad(_text(9), 12).to("meta")).shape == (1, 3)


@pytest.mark.parametrize("training", [True, pytest.param(False, marks=pytest.mark.matrix)])
def test_compiles_to_one_graph_for_all_lengths(training):
    torch._dynamo.reset()
    graphs = []
    network = _network(**RECIPE).train(training)

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(network, backend=backend, fullgraph=True, dynamic=True)
    for batch, length in ((2, 9), (3, 10), (5, 17)):
        ids = torch.cat([_pad(_text(length - row), length) for row in range(batch)])
        torch.testing.assert_close(compiled(ids), network(ids), rtol=0, atol=1e-5)
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_exports_with_a_free_batch_and_length():
    network = _network(**RECIPE).eval()
    ids = torch.cat([_pad(_text(length), 9) for length in (9, 4)])
    # One patch would be exported as a case of its own; a shorter text is padded to two.
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time", min=5, max=21)
    exported = torch.export.export(network, (ids,), dynamic_shapes=({0: batch, 1: time},)).module()
    for length in (6, 12, 21):
        other = _text(length).repeat(2, 1)
        torch.testing.assert_close(exported(other), network(other), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (
            lambda: TextTransformer(10, 8, 2, embed_dim=10, num_heads=4),
            "embed_dim is 10: it must be divisible",
        ),
        (lambda: TextTransformer(10, 8, 2, num_layers=-1), "num_layers is -1: it must be 0 or more"),
    ],
)
def test_sizes_that_make_no_network(build, says):
    with pytest.raises(ValueError, match="it must be") as refused:
        build()
    assert says in str(refused.value)
