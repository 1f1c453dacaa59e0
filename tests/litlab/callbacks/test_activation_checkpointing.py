"""Which blocks are computed again, in a fit alone; tests/litlab/nn has what they compute."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from litlab.callbacks import EMA, ActivationCheckpointing
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, are_equal, fit


def test_a_fit_is_the_same_and_nothing_else_is_changed(tmp_path):
    def run(*callbacks):
        torch.manual_seed(0)
        block, runs = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.3)), []
        block[0].register_forward_hook(lambda *_: runs.append(1))
        model = Tiny(network=nn.Sequential(block, nn.Flatten(), nn.Linear(192, 4)))
        fit(tmp_path, model, *callbacks, EMA(0.9))
        assert all("forward" not in vars(module) for module in model.modules())
        return len(runs), model.state_dict()

    plain, changed = run(), run(ActivationCheckpointing())
    assert changed[0] == plain[0] + 3  # once more in each training step
    assert are_equal(plain[1], changed[1])


def test_which_blocks():
    resnet = Tiny(network=resnet18())
    ActivationCheckpointing().setup(None, resnet, "fit")
    changed = [name for name, module in resnet.named_modules() if "forward" in vars(module)]
    assert changed == [f"network.layer{number}.{block}" for number in (1, 2, 3, 4) for block in (0, 1)]
    with pytest.raises(UserError, match=r"^activation_checkpointing\.blocks: "):
        ActivationCheckpointing().setup(None, Tiny(), "fit")
