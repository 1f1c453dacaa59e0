"""Parameter groups by name: scales, weight decay, layers, and what is refused."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from litlab.optim import GroupRule, ParamGroups
from litlab.tasks import Classifier


def build(rules: list[GroupRule], lr: float | Tensor = 0.1, **settings) -> Classifier:
    blocks = nn.ModuleList(
        [nn.Sequential(nn.Conv2d(4, 4, 3, bias=False), nn.BatchNorm2d(4)) for _ in range(2)]
    )
    parts = {"stem": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "blocks": blocks}
    network = nn.ModuleDict({**parts, "head": nn.Linear(4, 2)})
    optimizer, groups = partial(AdamW, lr=lr, weight_decay=0.5), ParamGroups(rules, **settings)
    return Classifier(network, num_classes=2, optimizer=optimizer, param_groups=groups)


def settings_of(model: Classifier) -> dict[str, tuple[float, float]]:
    """Rate and weight decay of each parameter, by its name."""
    settings = {}
    for group in model.new_optimizer().param_groups:
        settings |= dict.fromkeys(group["params"], (group["lr"], group["weight_decay"]))
    return {name: settings[parameter] for name, parameter in model.network.named_parameters()}


def test_the_first_rule_that_matches_counts():
    rules = [
        GroupRule("network.head", lr_scale=10),
        GroupRule(["*.bias", "network.norm"], 0.5, weight_decay=0.25),
    ]
    settings = settings_of(build(rules))
    assert settings["head.weight"] == settings["head.bias"] == (1.0, 0.5)
    for name in ("stem.bias", "norm.weight", "blocks.1.1.bias"):
        assert settings[name] == (0.05, 0.25)
    assert settings["stem.weight"] == settings["blocks.1.1.weight"] == (0.1, 0.5)


def test_norms_and_biases_can_do_without_weight_decay():
    settings = settings_of(
        build([GroupRule("network.norm", weight_decay=0.125)], decay_norms_and_biases=False)
    )
    assert {name for name, (_, decay) in settings.items() if decay == 0.5} == {
        "stem.weight", "blocks.0.0.weight", "blocks.1.0.weight", "head.weight"
    }  # fmt: skip
    assert settings["norm.weight"] == settings["norm.bias"] == (0.1, 0.125)
    assert settings["head.bias"] == (0.1, 0)


def test_learning_rates_fall_towards_the_input():
    """Blocks in a list count one by one; a norm belongs to the convolution before it; rules scale
    on top.
    """
    settings = settings_of(build([GroupRule("network.blocks.0.1", 8)], layer_decay=0.5))
    rates = [rate for rate, _ in settings.values()]  # of stem, norm, blocks and head
    assert rates == pytest.approx([0.0125] * 4 + [0.025, 0.2, 0.2] + [0.05] * 3 + [0.1] * 2)


def test_rates_in_tensors_make_the_same_groups_each_with_a_tensor_of_its_own():
    rules = [GroupRule("network.head", lr_scale=10), GroupRule("*.bias", 0.5)]
    plain, others = (
        build(rules, lr, layer_decay=0.5).new_optimizer().param_groups
        for lr in (0.1, torch.tensor(0.1))
    )
    for ours, other in zip(plain, others, strict=True):
        assert len(ours["params"]) == len(other["params"])
        assert ours["lr"] == pytest.approx(other["lr"].item())
    assert len({group["lr"].data_ptr() for group in others}) == len(others) > 2
