"""Which parameters are trained when, channels last in memory, and what a fit that failed leaves
behind.
"""

from copy import deepcopy
from itertools import pairwise
from unittest.mock import Mock

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn

from litlab.callbacks import QAT, ActivationCheckpointing, Freeze, FreezeRule, OptimizerInBackward
from litlab.callbacks.memory import ChannelsLast
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, fit, make_trainer


def test_gradually_and_never(tmp_path):
    """Weights and statistics; the first rule that matches counts; the model is left as it was
    found.
    """
    rules = [FreezeRule(["network.4"], 0), FreezeRule("network.1", 1), FreezeRule("*")]
    model, states = Tiny(), []
    model.network[4].bias.requires_grad_(False)  # the network's own decision

    def keep(trainer, pl_module):
        states.append(deepcopy(pl_module.state_dict()))

    epochs = LambdaCallback(on_fit_start=keep, on_train_epoch_end=keep)
    fit(tmp_path, model, Freeze(rules), epochs, max_epochs=2)
    left = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert left == ["network.4.bias"]
    changed = [
        {name for name in new if not torch.equal(old[name], new[name])}
        for old, new in pairwise(states)
    ]
    norm = {name for name in states[0] if name.startswith("network.1.")}
    assert changed == [{"network.4.weight"}, {"network.4.weight"} | norm]


def test_what_leaves_nothing_to_train_is_refused(tmp_path):
    """For good; tests/litlab/test_advice.py has what leaves nothing in the first epoch."""
    with pytest.raises(UserError, match=r"^freeze\.rules: they freeze all parameters for good"):
        fit(tmp_path, Tiny(), Freeze([FreezeRule("*")]))


def test_the_layout_of_images_changes_and_that_of_volumes_does_not(tmp_path):
    model = Tiny()
    model.of_volumes = nn.Conv3d(2, 2, 3)
    ChannelsLast().setup(make_trainer(tmp_path), model, "fit")
    filters = model.network[0].weight, model.of_volumes.weight
    assert [weight.is_contiguous() for weight in filters] == [False, True]


@pytest.mark.parametrize(
    "callback",
    [
        ActivationCheckpointing("network.0"),
        OptimizerInBackward(),
        QAT(),
        Freeze([FreezeRule("network.0", 1)]),
    ],
)
def test_a_fit_that_failed_leaves_the_model_as_it_was(tmp_path, callback):
    model, fail = Tiny(), LambdaCallback(on_train_batch_end=Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, model, callback, fail)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any("forward" in vars(module) for module in model.modules())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
