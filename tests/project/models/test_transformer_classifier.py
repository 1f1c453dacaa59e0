"""The text model: its contract, its settings, and how it reads texts that are too long."""

import math
import shutil
from functools import partial

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader

from litlab.errors import UserError
from litlab.optim import Schedule
from litlab.testing import ModuleContract
from project.models.transformer_classifier import TransformerClassifier
from project.networks.attention import MultiHeadAttention
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

    def test_what_is_left_out_comes_from_the_data(self, build):
        model, data, _ = build("--data.max_tokens=40", "--data.vocab_size=500")
        asked = {name: getattr(data, name) for name in ("num_classes", "vocab_size", "max_tokens")}
        assert {name: model.hparams[name] for name in asked} == asked
        assert model.network.embedding.num_embeddings == 500
        assert model.network.positions.shape == (40, 32)

    @pytest.mark.parametrize(
        ("name", "here", "there"), [("num_classes", 5, 4), ("vocab_size", 9, 500), ("max_tokens", 8, 40)]
    )
    def test_data_of_another_size_is_refused_before_the_first_step(self, build, name, here, there):
        facts = ("--data.max_tokens=40", "--data.vocab_size=500")
        model, data, trainer = build(*facts, f"--model.{name}={here}")
        with pytest.raises(UserError) as error:
            trainer.fit(model, data)
        assert str(error.value) == (
            f"model.{name}: {here} differs from the data's {there}; leave it out, or set the same in both"
        )


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


def test_texts_that_fit_are_read_once():
    model = _model().eval()
    calls = []
    model.network.register_forward_hook(lambda *_: calls.append(1))
    inputs = _batch([8, 2])
    torch.testing.assert_close(model(inputs), model.network(**inputs))
    assert len(calls) == 2  # one of them is this test's own


def test_a_long_text_in_training_is_a_bug():
    with pytest.raises(ValueError, match="texts of 9 tokens: the network takes 8 at most"):
        _model()(_batch([9, 4]))


def test_reading_both_ends_does_not_wait_for_the_device():
    """On the meta device tensors have no values: whatever would fetch one, and stop a GPU for it, fails."""
    model = _model().eval().to("meta")
    assert model({name: value.to("meta") for name, value in _batch([19, 3]).items()}).shape == (2, 3)


def test_the_default_is_a_plain_encoder():
    network = _model().network
    assert network.stem is network.patches is None
    assert network.pooling.kinds == ("mean",)
    assert len(network.blocks) == 1


def test_every_setting_reaches_the_network():
    optimizer, schedule = partial(torch.optim.SGD, lr=0.1), Schedule(torch.optim.lr_scheduler.ConstantLR)
    model = _model(
        embed_dim=12, num_layers=2, num_heads=3, dim_feedforward=20, positions="learned", norm="post",
        norm_class=nn.RMSNorm, attention=partial(MultiHeadAttention, implementation="math"), activation=nn.ReLU, stem=5,
        patch=2, pooling=("max", "mean"), embedding_dropout=0.11, dropout=0.22,
        head_dropout=0.33, word_dropout=0.44, label_smoothing=0.05,
        optimizer=optimizer, schedule=schedule,
    )  # fmt: skip
    network = model.network
    assert (model.label_smoothing, model.schedule) == (0.05, schedule)
    assert (model.optimizer.func, model.optimizer.keywords) == (torch.optim.SGD, {"lr": 0.1})
    assert [(block.attention.num_heads, block.attention.implementation, block.norm) for block in network.blocks] == [
        (3, "math", "post")
    ] * 2
    assert {type(block.feedforward[1]) for block in network.blocks} == {nn.ReLU}
    assert {type(norm) for block in network.blocks for norm in (block.norm1, block.norm2)} == {nn.RMSNorm}
    assert [layer.out_features for layer in network.blocks[0].feedforward if isinstance(layer, nn.Linear)] == [20, 12]
    assert network.positions.shape == (4, 12)
    assert network.positions.requires_grad
    assert network.stem.convolution.kernel_size == (5,)
    assert network.patches.size == 2
    assert network.pooling.kinds == ("max", "mean")
    assert (network.embedding_dropout.p, network.head_dropout.p, network.word_dropout) == (0.11, 0.33, 0.44)
    assert {block.dropout.p for block in network.blocks} == {0.22}
    assert network.head.weight.shape == (3, 24)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"embed_dim": 15}, "model.embed_dim: 15 is not valid; it must be divisible by model.num_heads .2"),
        ({"stem": 4}, "model.stem: 4 is not valid; it must be 0 or an odd number"),
        ({"pooling": ()}, r"model.pooling: \[\] is not valid; give one or more of mean, max and attention"),
        ({"pooling": ("mean", "mean")}, "model.pooling: "),
        ({"pooling": ("median",)}, "model.pooling: "),
        ({"max_tokens": None}, "model: vocab_size, max_tokens and num_classes are not all set"),
        ({"num_classes": None}, "model: vocab_size, max_tokens and num_classes are not all set"),
        ({"num_classes": 1}, "model.num_classes: 1 is not valid"),
    ],
)
def test_refusals(settings, says):
    with pytest.raises(UserError, match=says):
        _model(**settings)


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*logging interval")
def test_trains_tests_and_comes_back_from_its_checkpoint(tmp_path):
    """Two kinds of text, told apart by their words; validation texts are longer than max_tokens."""
    generator = torch.Generator().manual_seed(0)

    def texts(length: int) -> list:
        labels = torch.arange(32) % 2
        ids = 2 + 14 * labels[:, None] + torch.randint(0, 14, (32, length), generator=generator)
        return [({"ids": a}, label) for a, label in zip(ids, labels, strict=True)]

    model = _model(num_classes=2, pooling=("mean", "attention"))
    model.optimizer = lambda parameters: torch.optim.AdamW(parameters, lr=0.01)
    trainer = Trainer(
        max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, gradient_clip_val=1.0,
    )  # fmt: skip
    long = DataLoader(texts(12), batch_size=16)
    trainer.fit(model, DataLoader(texts(6), batch_size=8), long)
    assert trainer.callback_metrics["val/acc"] == 1
    trainer.save_checkpoint(tmp_path / "texts.ckpt")
    again = TransformerClassifier.load_from_checkpoint(tmp_path / "texts.ckpt", weights_only=True)
    inputs = next(iter(long))[0]
    expected = model.eval()(inputs).softmax(dim=1)
    torch.testing.assert_close(again.eval().predict_step(inputs, 0), expected)


def test_an_attention_of_ones_own(run, texts, own_part, tmp_path):
    """The one of docs/experiments.md: trained, resumed, tested and used by what the run's folder says."""
    overlay = own_part("experiments.md", "networks/linear_attention.py")
    small = ("--data.dataset=csv", f"--data.path={texts}", "--data.batch_size=32", "--model.embed_dim=16")
    short = ("--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1")
    done = run("fit", "--config", CONFIGS / "text.yaml", "--config", overlay, *small, *short)
    assert done.code == 0, done.err
    checkpoint = torch.load(tmp_path / "lightning_logs/text/version_0/checkpoints/last.ckpt", weights_only=True)
    assert checkpoint["hyper_parameters"]["attention"] == {
        "class_path": "project.networks.linear_attention.LinearAttention",
        "init_args": {"eps": 1e-4},
    }
    for command in (
        ("fit", "--resume", "last", "--trainer.max_epochs=2"),
        ("test", "--run", "last"),
        ("predict", "--run", "last", "--input", texts),
    ):
        done = run(*command)
        assert done.code == 0, done.err
    assert len((tmp_path / "lightning_logs/text/version_0/predictions.csv").read_text().splitlines()) == 161


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


def test_the_attention_of_the_documentation_is_one(own_part):
    """With one key all of the weight is on it; padding has none."""
    own_part("experiments.md", "networks/linear_attention.py")
    from project.networks.linear_attention import LinearAttention  # pyright: ignore[reportMissingImports]

    attention, x = LinearAttention(24, 4), torch.randn(2, 5, 24)
    mask = torch.tensor([True, False, False, False, False]).expand(2, 1, 1, 5)
    value = attention.queries_keys_values(x[:, :1]).unflatten(-1, (4, 3, -1))[..., 2, :].flatten(2)
    torch.testing.assert_close(attention(x, mask), attention.output(value).expand(2, 5, 24), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("attention=sdpa", "model.attention: there is no class 'sdpa'"),
        ("attention={class_path: MultiHeadAttention, init_args: {dropout: 2}}", "model.attention.dropout"),
        ("activation=gelu", "model.activation: there is no class 'gelu'; did you mean 'GELU'?"),
        ("norm_class=pre", "model.norm_class: there is no class 'pre'"),
    ],
)
def test_classes_that_are_none(run, texts, flag, says):
    data = ("--data.dataset=csv", f"--data.path={texts}")
    done = run("fit", "--config", CONFIGS / "text.yaml", *data, f"--model.{flag}", "--trainer.accelerator=cpu")
    assert done.code == 2
    assert says in done.err
    assert done.err.count("error: ") == 1
