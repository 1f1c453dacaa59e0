"""Channels last in memory, and what a fit that failed leaves behind."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from litlab.callbacks import QAT, ActivationCheckpointing, OptimizerInBackward
from litlab.callbacks.layout import ChannelsLast
from tests.litlab.callbacks.tiny import Failing, Tiny, are_equal, fit, make_trainer


def test_the_layout_changes_and_nothing_else(tmp_path):
    model = Tiny(network=nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)))
    model.of_volumes = nn.Conv3d(2, 2, 3)  # stays as it is
    images, before = torch.randn(2, 3, 8, 8), deepcopy(model.state_dict())
    plain = model.network(images)
    ChannelsLast().setup(make_trainer(tmp_path), model, "fit")
    output = model.network(images)
    assert not output.is_contiguous()
    torch.testing.assert_close(output, plain, check_stride=False)
    assert are_equal(before, model.state_dict())


@pytest.mark.parametrize("callback", [ActivationCheckpointing("network.0"), OptimizerInBackward(), QAT()])
def test_a_fit_that_failed_leaves_the_model_as_it_was(tmp_path, callback):
    model = Failing()
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, model, callback)
    assert not any("forward" in vars(module) for module in model.modules())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
