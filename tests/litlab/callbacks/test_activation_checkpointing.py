"""Blocks that are computed again, with the same numbers."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from litlab.callbacks import EMA, ActivationCheckpointing
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, are_equal, fit


class Block(nn.Module):
    runs = 0  # of the forward pass, of all blocks

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        Block.runs += 1
        return x + nn.functional.dropout(self.norm(self.conv(x)), 0.3, self.training).relu()


def test_a_fit_is_the_same_and_nothing_else_is_changed(tmp_path):
    def run(*callbacks):
        torch.manual_seed(0)
        model = Tiny(network=nn.Sequential(nn.Conv2d(3, 4, 3), Block(), Block(), nn.Flatten(), nn.Linear(4 * 36, 4)))
        Block.runs = 0
        fit(tmp_path, model, *callbacks, EMA(0.9), data=TinyData(12, 4), max_epochs=2)
        assert all("forward" not in vars(module) for module in model.modules())
        return Block.runs, model.state_dict()

    plain, changed = run(), run(ActivationCheckpointing())
    assert changed[0] == plain[0] + 2 * 2 * 3  # two blocks again in each of three training steps of two epochs
    assert are_equal(plain[1], changed[1])


def test_which_blocks():
    resnet = Tiny(network=resnet18())
    ActivationCheckpointing().setup(None, resnet, "fit")
    changed = [name for name, module in resnet.named_modules() if "forward" in vars(module)]
    assert changed == [f"network.layer{number}.{block}" for number in (1, 2, 3, 4) for block in (0, 1)]
    with pytest.raises(UserError, match=r"^activation_checkpointing\.blocks: "):
        ActivationCheckpointing().setup(None, Tiny(), "fit")
