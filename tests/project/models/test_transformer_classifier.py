"""The text model: its contract with layers that the command line names, and how it reads texts
that are too long.
"""

import math
import re

import pytest
import torch
from torch import nn

from litlab.testing import ModuleContract
from project.models.transformer_classifier import TransformerClassifier
from project.networks.text_transformer import TextTransformer
from tests.conftest import BRIEF, CONFIGS
from tests.litlab.runs.conftest import error


class TestTransformerClassifier(ModuleContract):
    config = CONFIGS / "text.yaml"
    settings = (
        *"""
            --data.dataset=csv --data.path={texts} --data.batch_size=16
            --model.network.embed_dim=16 --model.optimizer.init_args.lr=0.01
            --model.network.activation=SiLU --model.network.attention=MultiHeadAttention
            --model.network.attention.implementation=math
        """.split(),
    )
    loss_at_start = 3 * math.log(4)  # the sum of three networks
    overfit_steps = 30


def _model(**settings) -> TransformerClassifier:
    torch.manual_seed(0)
    data = {"max_tokens": 8, "num_classes": 3}
    sizes = {"vocab_size": 30, "embed_dim": 16, "num_heads": 2, "dim_feedforward": 24}
    model = TransformerClassifier(TextTransformer(**sizes, **data, **settings), **data)
    nn.init.normal_(model.network.head.weight)  # logits of size 1, so that a difference shows
    return model


def _batch(lengths: list[int]) -> dict[str, torch.Tensor]:
    padding = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
    return {"ids": torch.randint(1, 30, padding.shape).masked_fill(padding, 0)}


@pytest.mark.parametrize("settings", [{}, {"stem": 3, "patch": 3, "positions": "learned"}])
def test_long_texts_are_read_at_both_ends(settings):
    model = _model(**settings).eval()
    lengths = [19, 3, 8, 9, 13]
    inputs = _batch(lengths)
    logits = model(inputs)
    for row, length in enumerate(lengths):
        text = inputs["ids"][row : row + 1, :length]
        head, tail = model.network(text[:, :8]), model.network(text[:, -8:])
        torch.testing.assert_close(logits[row : row + 1], (head + tail) / 2, rtol=0, atol=1e-5)
        if length > 8:
            assert not torch.allclose(head, tail, atol=1e-3)


def test_ngrams_are_counted_in_texts_that_stay_as_they_are(run, texts):
    data = f"--data.dataset=csv --data.path={texts} --data.long_texts=crop"
    fit = [f"fit --config={CONFIGS}/text.yaml --trainer.limit_train_batches=1 {data}", *BRIEF]
    assert re.search("model.network.ngrams.*data.long_texts", error(run(*fit)))
    run(*fit, "--model.network.ngrams=0", "--model.members=1").check()
