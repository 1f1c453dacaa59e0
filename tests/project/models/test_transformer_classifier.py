"""The text model: its contract, its settings, and how it reads texts that are too long."""

import math
import shutil

import pytest
import torch
from torch import nn

from litlab.errors import UserError
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


def test_a_long_text_in_training_is_a_bug():
    with pytest.raises(ValueError, match="texts of 9 tokens: the network takes 8 at most"):
        _model()(_batch([9, 4]))


def test_reading_both_ends_does_not_wait_for_the_device():
    """On the meta device tensors have no values: whatever would fetch one, and stop a GPU for it, fails."""
    model = _model().eval().to("meta")
    assert model({name: value.to("meta") for name, value in _batch([19, 3]).items()}).shape == (2, 3)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"embed_dim": 15}, "model.embed_dim: 15 is not valid; it must be divisible by model.num_heads .2"),
        ({"stem": 4}, "model.stem: 4 is not valid; it must be 0 or an odd number"),
        ({"pooling": ()}, r"model.pooling: \[\] is not valid; give one or more of mean, max and attention"),
        ({"num_classes": None}, "model: vocab_size, max_tokens and num_classes are not all set"),
    ],
)
def test_refusals(settings, says):
    with pytest.raises(UserError, match=says):
        _model(**settings)


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_trains_with_operators_that_the_command_line_names(run, texts, tmp_path):
    """The same weights after some steps with the operator as without; the run's folder says what is in the network."""
    small = ("--data.dataset=csv", f"--data.path={texts}", "--data.batch_size=32", "--model.embed_dim=16")
    short = ("--trainer.max_epochs=2", "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1", "--ema=null")
    activation = "--model.activation=project.ops.squared_relu.SquaredReLU"
    exact = "--trainer.precision=32-true"  # `auto` is bfloat16 on some CPUs
    weights = []
    for form in ("fused_softmax", "math"):
        own = (activation, "--model.attention=MultiHeadAttention", f"--model.attention.implementation={form}")
        done = run("fit", "--config", CONFIGS / "text.yaml", *small, *short, exact, *own)
        assert done.code == 0, done.err
        assert "plain PyTorch" not in done.err
        folder = tmp_path / f"lightning_logs/text/version_{len(weights)}"
        checkpoint = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
        assert checkpoint["hyper_parameters"]["attention"]["init_args"]["implementation"] == form
        assert "SquaredReLU" in str(checkpoint["hyper_parameters"]["activation"])
        weights.append(checkpoint["state_dict"])
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-4)
    done = run("test", "--run", "text/version_0")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("attention=sdpa", "model.attention: there is no class 'sdpa'"),
        ("activation=gelu", "model.activation: there is no class 'gelu'; did you mean 'GELU'?"),
    ],
)
def test_classes_that_are_none(run, texts, flag, says):
    data = ("--data.dataset=csv", f"--data.path={texts}")
    done = run("fit", "--config", CONFIGS / "text.yaml", *data, f"--model.{flag}", "--trainer.accelerator=cpu")
    assert done.code == 2
    assert says in done.err
    assert done.err.count("error: ") == 1
