"""The table of parameter groups: rates as the schedule will reach them, and what trains the parameters."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim.lr_scheduler import OneCycleLR

from litlab.commands.check.check import list_groups
from litlab.optim import GroupRule, Muon, ParamGroups, Schedule
from tests.litlab.commands.check.conftest import model


def groups(optimizer: Any, **settings: Any) -> list[tuple[str, ...]]:
    module = model()
    module.param_groups, module.optimizer = ParamGroups([GroupRule("network.last", **settings)]), optimizer
    made = module.new_optimizer()
    Schedule(OneCycleLR, "step").configure(made, steps=10, epochs=1)
    trainer: Any = SimpleNamespace(optimizers=[made])
    return list_groups(trainer, module)


def test_rates_are_those_that_the_schedule_reaches():
    rows = groups(partial(torch.optim.SGD, lr=0.01, momentum=0.9), lr_scale=3.0)
    assert [(row[1], *row[2:]) for row in rows] == [
        ("network.first (2)", "0.01", "0"),
        ("network.last (2)", "0.03", "0"),
    ]
    assert {row[2].partition(" ")[2] for row in groups(partial(Muon, lr=0.002), lr_scale=1.0)} == {"muon", "adamw"}
