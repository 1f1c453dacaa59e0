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


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), Block(), Block(), nn.Flatten(), nn.Linear(4 * 36, 4))


def test_a_fit_is_the_same_and_nothing_else_is_changed(tmp_path, caplog):
    def fit(*callbacks):
        model = Tiny(network=network())
        trainer = make_trainer(tmp_path, max_epochs=2, callbacks=[*callbacks, EMA(0.9)])
        Block.runs = 0
        torch.manual_seed(1)
        trainer.fit(model, TinyData(12, 4))
        runs = Block.runs
        trainer.test(model, TinyData(), verbose=False)
        assert Block.runs == runs + 2 * 3  # two blocks, three batches
        assert all("forward" not in vars(module) for module in model.modules())
        return runs, model.state_dict(), trainer.callback_metrics

    plain, changed = fit(), fit(ActivationCheckpointing())
    assert changed[0] == plain[0] + 2 * 2 * 3  # two blocks again in each of three training steps of two epochs
    for one, other in zip(plain[1:], changed[1:], strict=True):
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert "2 of 2 blocks are computed again in the backward pass: network.1, network.2" in caplog.text


def chosen(model, **settings) -> list[str]:
    callback = ActivationCheckpointing(**settings)
    callback.setup(None, model, "fit")
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


def test_which_blocks():
    def resnet():
        return Classifier(resnet18(), num_classes=10)

    layers = [f"network.layer{number}.{block}" for number in (1, 2, 3, 4) for block in (0, 1)]
    assert chosen(resnet()) == layers
    assert chosen(resnet(), every=3) == [layers[0], layers[3], layers[6]]
    assert chosen(resnet(), blocks="network.layer[34]") == ["network.layer3", "network.layer4"]
    assert chosen(resnet(), blocks=["network.layer4.*", "network.layer1.0.conv*"]) == [
        "network.layer1.0.conv1", "network.layer1.0.conv2", "network.layer4.0", "network.layer4.1"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"blocks": "network.layers"}, "activation_checkpointing.blocks: 'network.layers' matches no module of Tiny"),
        ({"blocks": None}, "activation_checkpointing.blocks: .*model.network.* has no blocks"),
    ],
)
def test_bad_values(settings, line):
    with pytest.raises(UserError, match=line):
        chosen(Tiny(), **settings)


def test_a_fit_that_failed_leaves_the_blocks_as_they_were(tmp_path):
    model = Failing()
    with pytest.raises(ZeroDivisionError):
        make_trainer(tmp_path, callbacks=[ActivationCheckpointing(["network.0"])]).fit(model, TinyData())
    assert "forward" not in vars(model.network[0])


def test_a_forward_that_was_replaced_is_not_lost(tmp_path):
    model = Tiny()
    model.network[0].forward = lambda x: x[:, :, 1:-1, 1:-1]
    with pytest.raises(UserError, match=r"\.blocks: the forward of network\.0 has been replaced"):
        make_trainer(tmp_path, callbacks=[ActivationCheckpointing(["network.0"])]).fit(model, TinyData())
