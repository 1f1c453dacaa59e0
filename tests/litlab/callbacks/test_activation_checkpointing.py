"""Blocks that are computed again, with the same numbers."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from litlab.callbacks import EMA, ActivationCheckpointing
from litlab.errors import UserError
from litlab.tasks import Classifier
from tests.litlab.callbacks.tiny import Failing, Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Block(nn.Module):
    runs = 0  # of the forward pass, of all blocks

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        Block.runs += 1
        return x + nn.functional.dropout(self.norm(self.conv(x)), 0.3, self.training).relu()


def test_a_fit_is_the_same_and_nothing_else_is_changed(tmp_path):
    def fit(*callbacks):
        torch.manual_seed(0)
        model = Tiny(network=nn.Sequential(nn.Conv2d(3, 4, 3), Block(), Block(), nn.Flatten(), nn.Linear(4 * 36, 4)))
        Block.runs = 0
        make_trainer(tmp_path, max_epochs=2, callbacks=[*callbacks, EMA(0.9)]).fit(model, TinyData(12, 4))
        assert all("forward" not in vars(module) for module in model.modules())
        return Block.runs, model.state_dict()

    plain, changed = fit(), fit(ActivationCheckpointing())
    assert changed[0] == plain[0] + 2 * 2 * 3  # two blocks again in each of three training steps of two epochs
    assert list(changed[1]) == list(plain[1])
    assert all(torch.equal(plain[1][name], value) for name, value in changed[1].items())


def chosen(model, blocks=None) -> list[str]:
    ActivationCheckpointing(blocks).setup(None, model, "fit")
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


def test_which_blocks():
    def resnet():
        return Classifier(resnet18(), num_classes=10)

    assert chosen(resnet()) == [f"network.layer{number}.{block}" for number in (1, 2, 3, 4) for block in (0, 1)]
    assert chosen(resnet(), "network.layer[34]") == ["network.layer3", "network.layer4"]
    assert chosen(resnet(), ["network.layer4.*", "*.0.conv1"])[-2:] == ["network.layer4.0", "network.layer4.1"]


@pytest.mark.parametrize("blocks", ["network.layers", None])
def test_what_is_refused(blocks):
    with pytest.raises(UserError, match=r"^activation_checkpointing\.blocks: "):
        chosen(Tiny(), blocks)


def test_a_fit_that_failed_leaves_the_blocks_as_they_were(tmp_path):
    model = Failing()
    with pytest.raises(ZeroDivisionError):
        make_trainer(tmp_path, callbacks=[ActivationCheckpointing(["network.0"])]).fit(model, TinyData())
    assert "forward" not in vars(model.network[0])
