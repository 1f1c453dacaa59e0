"""The text model: its contract, its settings, and how it reads texts that are too long."""

import math
import shutil

import pytest
import torch
from torch import nn

from litlab.testing import ModuleContract
from project.models.transformer_classifier import TransformerClassifier
from tests.conftest import CONFIGS


class TestTransformerClassifier(ModuleContract):
    config = CONFIGS / "text.yaml"
    settings = (
        "--data.dataset=csv",
        "--data.path={texts}",
        "--data.batch_size=16",
        "--model.embed_dim=32",
        "--model.optimizer.init_args.lr=0.01",
    )
    loss_at_start = math.log(4)
    overfit_steps = 30


def _model(**settings) -> TransformerClassifier:
    torch.manual_seed(0)
    settings = {"embed_dim": 16, "num_heads": 2, "dim_feedforward": 24, "max_tokens": 8, "num_classes": 3, **settings}
    model = TransformerClassifier(vocab_size=30, **settings)
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


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_trains_with_operators_that_the_command_line_names(run, texts, tmp_path):
    """The run's folder says what is in the network."""
    small = ("--data.dataset=csv", f"--data.path={texts}", "--data.batch_size=32", "--model.embed_dim=16")
    few = ("--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1")
    own = (
        "--model.activation=project.ops.squared_relu.SquaredReLU", "--model.attention=MultiHeadAttention",
        "--model.attention.implementation=fused_softmax", "--trainer.callbacks=[]",
    )  # fmt: skip
    done = run("fit", "--config", CONFIGS / "text.yaml", *small, *few, *own)
    assert done.code == 0, done.err
    assert "plain PyTorch" not in done.err
    checkpoint = torch.load(tmp_path / "lightning_logs/text/version_0/checkpoints/last.ckpt", weights_only=True)
    assert checkpoint["hyper_parameters"]["attention"]["init_args"]["implementation"] == "fused_softmax"
    assert "SquaredReLU" in str(checkpoint["hyper_parameters"]["activation"])
    done = run("test", "--run", "text/version_0")
    assert done.code == 0, done.err
