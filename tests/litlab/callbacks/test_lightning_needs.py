"""What Lightning's callbacks and tools need of a model."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from litlab.errors import UserError
from litlab.optim import Schedule, WarmupDecay
from litlab.optim.recipe import plain_recipe
from litlab.tasks import Classifier


def test_a_learning_rate_that_is_no_setting_can_not_be_found():
    model = Classifier(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2)), num_classes=2)
    model.optimizer = lambda parameters: torch.optim.SGD(
        [{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:], "lr": 0.2}]
    )
    assert model.lr is None
    with pytest.raises(UserError, match=r"^model\.optimizer: .* has no lr above 0; "):
        model.lr = 0.03
    assert [group["lr"] for group in model.configure_optimizers().param_groups] == [0.1, 0.2]


class Parser:
    """Calls classes, as the command line's does, and can't be copied."""

    def __call__(self, cls, *arguments, **keywords):
        return cls(*arguments, **keywords)

    def __deepcopy__(self, memo):
        raise TypeError("a parser can't be copied")


def test_recipes_of_the_command_line_can_be_copied():
    optimizer = copy.deepcopy(plain_recipe(partial(Parser(), torch.optim.SGD, lr=0.3)))
    schedule = copy.deepcopy(plain_recipe(Schedule(partial(Parser(), WarmupDecay, warmup=0.5), interval="step")))
    built = optimizer([torch.zeros(1)])
    assert built.param_groups[0]["lr"] == 0.3
    configured = schedule.configure(built, 10, 1)
    assert isinstance(configured["scheduler"], WarmupDecay)
    assert configured["interval"] == "step"
    own = partial(sorted, reverse=True)  # not of the command line
    assert plain_recipe(own)([1, 2]) == [2, 1]
