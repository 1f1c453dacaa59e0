"""The text network: padding never matters, every option does."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from litlab.errors import UserError
from project.networks.attention import MultiHeadAttention
from project.networks.text_transformer import TextTransformer

WRITTEN = partial(MultiHeadAttention, implementation="math")
RECIPE = {
    "positions": "learned", "stem": 3, "patch": 4, "pooling": ("mean", "max", "attention"), "ngram_features": 6,
}  # fmt: skip
OPTIONS = [
    {}, {"positions": "learned"}, {"norm": "post"}, {"attention": WRITTEN}, {"stem": 3}, {"stem": 7}, {"patch": 2},
    {"patch": 4}, {"patch": 5}, {"pooling": ("max",)}, {"pooling": ("attention",)}, {"ngram_features": 6},
    {"num_layers": 0}, {"num_layers": 3}, {"norm_class": nn.RMSNorm, "activation": nn.ReLU}, RECIPE,
    {**RECIPE, "norm": "post", "attention": WRITTEN, "positions": "sinusoidal"},
]  # fmt: skip


def _network(**settings) -> TextTransformer:
    torch.manual_seed(0)
    settings = {"embed_dim": 16, "num_heads": 2, "dim_feedforward": 24, "dropout": 0.0, **settings}
    network = TextTransformer(vocab_size=50, max_tokens=21, num_classes=3, **settings)
    nn.init.normal_(network.head.weight)  # logits of size 1, so that a difference shows
    return network


def _text(length: int, network: TextTransformer) -> dict[str, torch.Tensor]:
    inputs = {"ids": torch.randint(2, 50, (1, length))}
    if network.ngrams is not None:
        inputs["ngram_features"] = torch.randn(1, length, network.ngrams[0].in_features)
    return inputs


def _pad(inputs: dict[str, torch.Tensor], length: int) -> dict[str, torch.Tensor]:
    missing = length - inputs["ids"].shape[1]
    return {name: F.pad(v, (0, missing) if v.ndim == 2 else (0, 0, 0, missing)) for name, v in inputs.items()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_padding_never_changes_the_logits(options):
    network = _network(**options).eval()
    texts = [_text(length, network) for length in (1, 2, 3, 8, 13)]
    alone = torch.cat([network(**text) for text in texts])
    assert alone.std(dim=0).min() > 0.1
    for length in (13, 14, 16, 21):
        padded = [_pad(text, length) for text in texts]
        batch = {name: torch.cat([text[name] for text in padded]) for name in padded[0]}
        torch.testing.assert_close(network(**batch), alone, rtol=0, atol=1e-5)
        if "ngram_features" in batch:  # what stands at padding is not read, be it no number
            batch["ngram_features"] = batch["ngram_features"].masked_fill((batch["ids"] == 0)[:, :, None], torch.nan)
            torch.testing.assert_close(network(**batch), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_token_matters_and_so_does_its_place(options):
    network = _network(**options).eval()
    text = _text(9, network)
    before = network(**text)
    for place in range(9):
        changed = {**text, "ids": text["ids"].clone()}
        changed["ids"][0, place] = 1
        if options.get("pooling") != ("max",):  # a maximum may be another token's
            assert (network(**changed) - before).abs().max() > 1e-4, place
        if "ngram_features" in options:
            changed = {**text, "ngram_features": text["ngram_features"].clone()}
            changed["ngram_features"][0, place] += 3
            assert (network(**changed) - before).abs().max() > 1e-4, place
    if options.get("num_layers") != 0 or "stem" in options:
        backwards = network(**{name: value.flip(1) for name, value in text.items()})
        assert (backwards - before).abs().max() > 1e-4


@pytest.mark.parametrize("options", [{}, RECIPE], ids=str)
def test_an_empty_text_gives_numbers_and_leaves_the_others_alone(options):
    network = _network(**options)
    text = _pad(_text(5, network), 6)
    both = {name: torch.cat([value, torch.zeros_like(value)]) for name, value in text.items()}
    logits = network(**both)
    torch.testing.assert_close(logits[:1], network(**text), rtol=0, atol=1e-5)
    logits.sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())
    assert logits.isfinite().all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_starts_at_the_loss_of_a_guess_and_moves_everything(options):
    torch.manual_seed(0)
    network = TextTransformer(50, 21, 3, embed_dim=16, num_heads=2, **options)
    inputs = _pad(_text(9, network), 12)
    loss = F.cross_entropy(network(**inputs), torch.tensor([1]))
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
    assert learned(**_text(21, learned)).shape == (1, 3)


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
        network(**_text(9, network))
        torch.testing.assert_close(seen[0].mean(dim=2), torch.zeros(1, 9), rtol=0, atol=1e-5)
        torch.testing.assert_close(seen[0].var(dim=2, correction=0), torch.ones(1, 9), rtol=0, atol=1e-2)


def test_written_and_fused_attention_give_the_same_logits():
    fused, written = (_network(**RECIPE, attention=form).eval() for form in (MultiHeadAttention, WRITTEN))
    text = _text(13, fused)
    torch.testing.assert_close(written(**text), fused(**text), rtol=0, atol=1e-5)
    assert {block.attention.implementation for block in written.blocks} == {"math"}


@pytest.mark.parametrize("name", ["embedding_dropout", "dropout", "head_dropout", "word_dropout"])
def test_each_dropout_is_for_training_only(name):
    network = _network(**{name: 0.5})
    text = _text(9, network)
    assert not torch.equal(network(**text), network(**text))
    network.eval()
    assert torch.equal(network(**text), network(**text))
    without = _network()
    assert torch.equal(without(**text), without(**text))


def test_word_dropout_replaces_real_words_and_keeps_their_evidence():
    network = _network(word_dropout=0.25, ngram_features=6)
    ids = torch.randint(2, 50, (400, 21)).masked_fill(torch.arange(21) >= 15, 0)
    evidence = torch.randn(400, 21, 6)
    seen = {}
    network.embedding.register_forward_pre_hook(lambda _, inputs: seen.update(ids=inputs[0]))
    network.ngrams.register_forward_pre_hook(lambda _, inputs: seen.update(ngram_features=inputs[0]))
    before = ids.clone()
    network(ids, evidence)
    assert torch.equal(ids, before)
    replaced = seen["ids"] != ids
    assert seen["ids"][replaced].eq(1).all()
    assert replaced[:, :15].float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert not replaced[:, 15:].any()
    assert torch.equal(seen["ngram_features"], evidence)


def test_embedding_dropout_leaves_the_evidence():
    network = _network(embedding_dropout=1.0, ngram_features=6)
    text, other = _text(9, network), _text(9, network)
    torch.testing.assert_close(network(**text), network(other["ids"], text["ngram_features"]))
    assert not torch.allclose(network(**text), network(**other), atol=1e-3)


def test_a_text_that_is_too_long_is_a_bug():
    network = _network()
    with pytest.raises(ValueError, match="texts of 22 tokens: the network takes 21 at most"):
        network(**_text(22, network))


@pytest.mark.parametrize(
    ("size", "says"), [(0, "ngram_features: 0 does not fit"), (6, "ngram_features: the data has none")]
)
def test_evidence_must_be_what_the_network_was_built_for(size, says):
    network, other = _network(ngram_features=size), _network(ngram_features=6 - size)
    with pytest.raises(UserError, match=says):
        network(**_text(9, other))


@pytest.mark.parametrize("options", [{}, RECIPE], ids=str)
def test_half_precision(options):
    network = _network(**options).eval()
    text = _pad(_text(9, network), 12)
    expected = network(**text)
    network.to(torch.bfloat16)
    half = network(**{name: v.bfloat16() if v.is_floating_point() else v for name, v in text.items()})
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.1, atol=0.2)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_waits_for_the_device(training):
    """On the meta device tensors have no values: whatever would fetch one, and stop a GPU for it, fails."""
    network = _network(**RECIPE, word_dropout=0.1).to("meta").train(training)
    text = {name: value.to("meta") for name, value in _pad(_text(9, _network(**RECIPE)), 12).items()}
    assert network(**text).shape == (1, 3)


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
        texts = [_pad(_text(length - row, network), length) for row in range(batch)]
        inputs = {name: torch.cat([text[name] for text in texts]) for name in texts[0]}
        torch.testing.assert_close(compiled(**inputs), network(**inputs), rtol=0, atol=1e-5)
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_exports_with_a_free_batch_and_length():
    network = _network(**RECIPE).eval()
    texts = [_pad(_text(length, network), 9) for length in (9, 4)]
    inputs = {name: torch.cat([text[name] for text in texts]) for name in texts[0]}
    # One patch would be exported as a case of its own; a shorter text is padded to two.
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time", min=5, max=21)
    shapes = {"ids": {0: batch, 1: time}, "ngram_features": {0: batch, 1: time}}
    exported = torch.export.export(network, (), inputs, dynamic_shapes=shapes).module()
    for length in (6, 12, 21):
        other = {name: value.repeat(2, *[1] * (value.ndim - 1)) for name, value in _text(length, network).items()}
        torch.testing.assert_close(exported(**other), network(**other), rtol=0, atol=1e-5)


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
