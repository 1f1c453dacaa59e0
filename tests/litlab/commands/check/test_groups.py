"""The table of parameter groups: rates as the schedule will reach them, and what trains the parameters."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from rich.console import Console
from torch.optim.lr_scheduler import OneCycleLR

from litlab.commands.check.check import groups_table
from litlab.optim import GroupRule, Muon, ParamGroups, Schedule
from tests.litlab.commands.check.conftest import model


def rows(module) -> list[list[str]]:
    optimizer = module.new_optimizer()
    Schedule(OneCycleLR, "step").configure(optimizer, steps=10, epochs=1)
    trainer: Any = SimpleNamespace(optimizers=[optimizer])
    console = Console(width=120)
    with console.capture() as captured:
        console.print(groups_table(trainer, module))
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines() if "│" in line]


def test_a_one_cycle_schedule_is_shown_with_its_peak():
    module = model(lr=0.01)
    module.param_groups = ParamGroups([GroupRule("network.last", lr_scale=3.0)])
    module.optimizer = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    assert [row[2] for row in rows(module)] == ["0.01", "0.03"]


def test_what_muon_trains_is_shown():
    module = model()
    module.optimizer = partial(Muon, lr=0.002)
    assert [row[:3] for row in rows(module)] == [
        ["48", "network.first.weight", "0.002 muon"],
        ["44", "network.first, network.last (2)", "0.002 adamw"],
    ]


def test_what_is_not_trained_is_shown():
    module = model()
    module.optimizer = lambda parameters: torch.optim.SGD([p for p in parameters if p.shape != (4,)], lr=0.01)
    assert [row[:2] for row in rows(module)][-1] == ["4", "network.last.bias"]
