"""What a picture of attention shows is what `TextTransformer` computes."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from litlab.callbacks import AttentionPlot
from litlab.data.text.tokenizer import train_tokenizer
from project.models.transformer_classifier import TransformerClassifier
from project.networks.text_transformer import TextTransformer
from tests.litlab.callbacks.tiny import evaluate

FIRE = 2


class Texts(LightningDataModule):
    """Four texts of two to five tokens, each with one that is unlike the others."""

    class_names = ("$x$", "spam")
    metadata = SimpleNamespace(
        tokenizer=train_tokenizer(["fire fire fire tree tree water water"], "word", 9), padding=0
    )
    ids = torch.tensor(
        [[3, FIRE, 0, 0, 0], [3, 4, FIRE, 0, 0], [FIRE, 3, 3, 3, 0], [4, 4, 4, FIRE, 4]]
    )

    def test_dataloader(self):
        return DataLoader([({"ids": ids}, torch.tensor(0)) for ids in self.ids], batch_size=2)


def draw(folder, pooling=("attention",), compiled=False, **settings):
    network = TextTransformer(
        vocab_size=5, num_classes=2, pooling=pooling, embed_dim=8, num_heads=2, dim_feedforward=8,
        max_tokens=5, **settings,
    )  # fmt: skip
    with torch.no_grad():  # fire alone has a score in the pooling, if there is nothing before it
        network.embedding.weight.zero_()[FIRE, 0] = network.embedding.weight[3:, 1] = 9.0
        network.positions.zero_()
        if "attention" in pooling:
            network.pooling.score.weight.zero_()[0, 0] = 9.0
        for block in network.blocks:
            block.attention.queries_keys_values.weight.zero_()
    graphs = []
    if compiled:
        network.compile(backend=lambda graph, _: graphs.append(graph) or graph)
        with torch.inference_mode():
            network.eval()(Texts.ids[:2])  # as validation does
    plot = AttentionPlot(4)
    evaluate(folder, TransformerClassifier(network, max_tokens=5, num_classes=2), Texts(), plot)
    assert len(graphs) == compiled  # not again, with hooks
    return plot.strips


@pytest.mark.parametrize("compiled", [False, True])
def test_pooling_looks_at_the_token_with_the_score(tmp_path, compiled):
    drawn = draw(tmp_path, num_layers=0, compiled=compiled)
    for ids, strips in zip(Texts.ids, drawn, strict=True):
        expected = (ids == FIRE).float()[: (ids > 0).sum()]
        torch.testing.assert_close(strips[0], expected, atol=1e-3, rtol=0)
    assert (tmp_path / "attention.png").is_file()


def test_heads_look_at_all_tokens_of_a_text_and_not_at_padding(tmp_path):
    for ids, strips in zip(Texts.ids, draw(tmp_path, num_layers=2), strict=True):
        count = int((ids > 0).sum())
        torch.testing.assert_close(strips[:2], torch.full((2, count), 1 / count))
        assert strips.shape == (3, count)


def test_patches_of_tokens(tmp_path):
    drawn = draw(tmp_path, patch=4, pooling=("mean",))
    assert [strips.shape for strips in drawn] == [(2, 1), (2, 1), (2, 1), (2, 2)]  # two heads
