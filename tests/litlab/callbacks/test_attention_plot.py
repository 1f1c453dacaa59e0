"""Attention of any network whose modules offer their weights, and of those of torch."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from litlab.callbacks import AttentionPlot
from litlab.data.text.tokenizer import train_tokenizer
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, evaluate

FIRE, PADDING = 2, 7


TEXTS = torch.tensor([[3, FIRE, PADDING, PADDING], [FIRE, 3, 3, 3]])


class Pool(nn.Module):
    """Looks at fire."""

    def forward(self, ids):
        return ids[:, :1].float()

    def attention_weights(self, rows, ids):
        return (ids[rows] == FIRE)[:, None, None]


class Network(nn.Module):
    """Attention that looks at all alike, the last of two, and a pooling."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        layers = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
        self.blocks = nn.TransformerEncoder(layers, 2)
        nn.init.zeros_(self.blocks.layers[1].self_attn.in_proj_weight)
        self.pooling = Pool()

    def forward(self, batch):
        ids = batch[0]["ids"]
        self.blocks(self.embedding(ids), src_key_padding_mask=ids == PADDING)
        return self.pooling(ids)


def draw(folder, network, data):
    plot, model = AttentionPlot(), Tiny(network=network)
    model.test_step = lambda batch, batch_idx: {"predicted": network(batch)}
    evaluate(folder, model, data, plot)
    return plot.strips


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_heads_of_torch_and_modules_of_ones_own(tmp_path):
    data = TinyData()
    data.dataset = [({"ids": ids}, torch.tensor([1.0])) for ids in TEXTS]
    tokenizer = train_tokenizer(["fire fire fire tree tree water water"], "word", 9)
    data.metadata = SimpleNamespace(tokenizer=tokenizer, padding=PADDING)
    strips = draw(tmp_path, Network(), data)
    for shown, ids in zip(strips, TEXTS, strict=True):
        length = int((ids != PADDING).sum())
        assert shown[:2].allclose(torch.full((2, length), 1 / length))
        assert shown[2].equal((ids[:length] == FIRE).float())
    assert (tmp_path / "attention.png").is_file()


def test_a_network_without_attention_has_no_picture(tmp_path, caplog):
    assert draw(tmp_path, nn.Identity(), TinyData()) == []
    assert "no module of the network has attention_weights" in caplog.text


def test_other_data_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"^AttentionPlot: .*'ids'.*; .*trainer\.callbacks$"):
        draw(tmp_path, Pool(), TinyData())
