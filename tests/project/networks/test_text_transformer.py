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
    {}, {"norm": "post"}, {"stem": 3}, {"patch": 5}, {"pooling": ("max",)}, {"num_layers": 0},
    {"norm_class": nn.RMSNorm, "activation": nn.ReLU}, RECIPE,
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


@pytest.mark.parametrize(
    "name", ["embedding_dropout", "position_dropout", "dropout", "feedforward_dropout", "head_dropout", "word_dropout"]
)
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


@pytest.mark.parametrize(
    ("size", "says"), [(0, "ngram_features: 0 does not fit"), (6, "ngram_features: the data has none")]
)
def test_evidence_must_be_what_the_network_was_built_for(size, says):
    network, other = _network(ngram_features=size), _network(ngram_features=6 - size)
    with pytest.raises(UserError, match=says):
        network(**_text(9, other))
