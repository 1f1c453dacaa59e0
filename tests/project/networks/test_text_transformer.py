"""The text network: padding never matters, every option does."""

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
    {}, {"norm_class": nn.RMSNorm, "activation": nn.ReLU, "num_layers": 2}, RECIPE,
    {**RECIPE, "norm": "post", "attention": WRITTEN, "positions": "sinusoidal"},
    {**RECIPE, "ngrams": 3, "ngram_buckets": 64},
]  # fmt: skip


def _network(**settings) -> TextTransformer:
    torch.manual_seed(0)
    settings = {"embed_dim": 16, "num_heads": 2, "dim_feedforward": 24, "dropout": 0.0, **settings}
    network = TextTransformer(vocab_size=50, max_tokens=21, num_classes=3, **settings)
    nn.init.normal_(network.head.weight)  # logits of size 1, so that a difference shows
    if network.ngrams is not None:
        network.ngrams.log_odds.normal_()
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


DROPOUTS = """
    embedding_dropout position_dropout dropout feedforward_dropout head_dropout word_dropout
"""


@pytest.mark.parametrize("name", DROPOUTS.split())
def test_each_dropout_is_for_training_only(name):
    network = _network(**{name: 0.5})
    text = _text(9)
    assert not torch.equal(network(text), network(text))
    network.eval()
    assert torch.equal(network(text), network(text))


def test_word_dropout_replaces_real_words_alone():
    network, seen, ids = _network(word_dropout=0.5), [], _pad(_text(15), 21)
    network.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(ids)
    replaced = seen[0] != ids
    assert seen[0][replaced].eq(1).all()
    assert replaced[:, :15].any()
    assert not replaced[:, 15:].any()
