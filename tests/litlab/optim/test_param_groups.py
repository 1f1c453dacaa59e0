"""Parameter groups by name: scales, weight decay, layers, and what is refused."""

from functools import partial

import pytest
from torch import nn
from torch.optim import AdamW, lr_scheduler

from litlab.errors import UserError
from litlab.optim import GroupRule, ParamGroups, Schedule
from litlab.tasks import Classifier

ADAMW = partial(AdamW, lr=0.1, weight_decay=0.5)


def _network():
    blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(4, 4, 3, bias=False), nn.BatchNorm2d(4)) for _ in range(2)])
    return nn.ModuleDict(
        {"stem": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "blocks": blocks, "head": nn.Linear(4, 2)}
    )


def _model(groups: ParamGroups, optimizer=ADAMW, **settings) -> Classifier:
    return Classifier(_network(), num_classes=2, optimizer=optimizer, param_groups=groups, **settings)


def _settings(model: Classifier, *names: str) -> dict[str, tuple[float, ...]]:
    """The named settings of each parameter's group, by its name."""
    names_of = {parameter: name for name, parameter in model.network.named_parameters()}
    groups = model.new_optimizer().param_groups
    return {names_of[p]: tuple(group[name] for name in names) for group in groups for p in group["params"]}


def test_the_first_rule_that_matches_counts():
    rules = [GroupRule("network.head", lr_scale=10), GroupRule(["*.bias", "network.norm"], 0.5, weight_decay=0.25)]
    found = _settings(_model(ParamGroups(rules)), "lr", "weight_decay")
    assert found["head.weight"] == found["head.bias"] == (1.0, 0.5)
    assert found["stem.bias"] == found["norm.weight"] == found["blocks.1.1.bias"] == (0.05, 0.25)
    assert found["stem.weight"] == found["blocks.1.1.weight"] == (0.1, 0.5)
    assert set(found) == {name for name, _ in _network().named_parameters()}


def test_norms_and_biases_can_do_without_weight_decay():
    rules = [GroupRule("network.norm", weight_decay=0.125)]
    found = _settings(_model(ParamGroups(rules, decay_norms_and_biases=False)), "weight_decay")
    vectors = {name for name, parameter in _network().named_parameters() if parameter.ndim == 1}
    assert {name for name, (decay,) in found.items() if decay == 0} == vectors - {"norm.weight", "norm.bias"}
    assert found["norm.weight"] == (0.125,)
    assert found["stem.weight"] == (0.5,)


def test_learning_rates_fall_towards_the_input():
    """Blocks in a list count one by one; a norm belongs to the convolution before it; rules scale on top."""
    rules = [GroupRule("network.blocks.0.1", 8)]
    found = _settings(_model(ParamGroups(rules, layer_decay=0.5)), "lr")
    expected = {"head": 0.1, "blocks.1": 0.05, "blocks.0": 0.025, "stem": 0.0125, "norm": 0.0125}
    for name, (rate,) in found.items():
        part = next(part for part in expected if name.startswith(part))
        scale = 8 if name.startswith("blocks.0.1") else 1
        assert rate == pytest.approx(scale * expected[part]), name


@pytest.mark.parametrize(
    "scheduler",
    [
        partial(lr_scheduler.OneCycleLR, max_lr=0.4, total_steps=20),
        partial(lr_scheduler.CyclicLR, base_lr=0.1, max_lr=0.4, cycle_momentum=False),
        partial(lr_scheduler.CosineAnnealingLR, T_max=10),
    ],
    ids=lambda scheduler: scheduler.func.__name__,
)
def test_schedules_keep_the_ratio_of_the_rates(scheduler):
    optimizer = _model(ParamGroups([GroupRule("network.head", 4)])).new_optimizer()
    schedule = Schedule(scheduler, "step").configure(optimizer, 20, 1)["scheduler"]
    body, head = optimizer.param_groups
    for _ in range(10):
        assert head["lr"] == pytest.approx(4 * body["lr"])
        optimizer.step()
        schedule.step()
    assert body["lr"] != 0.1


def test_what_the_learning_rate_finder_sets_is_scaled():
    model = _model(ParamGroups([GroupRule("network.head", 4)]))
    model.lr = 0.5
    assert [group["lr"] for group in model.new_optimizer().param_groups] == [0.5, 2.0]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            ParamGroups([GroupRule("network.haed")]),
            "model.param_groups.rules[0]: 'network.haed' matches no parameter of Classifier; "
            "did you mean 'network.head'?",
        ),
        (
            ParamGroups([GroupRule("xyz")]),
            "model.param_groups.rules[0]: 'xyz' matches no parameter of Classifier; its parts are ",
        ),
    ],
)
def test_what_is_refused(groups, message):
    with pytest.raises(UserError) as refused:
        _model(groups).new_optimizer()
    assert str(refused.value).startswith(message)
