"""``fit --plan``: a step on fake tensors, for networks that are small enough to be counted by hand,
and its lines.
"""

import copy
import logging
from collections import OrderedDict
from functools import cache, partial

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from litlab.callbacks import EMA, ActivationCheckpointing
from litlab.commands.plan import plan as plans
from litlab.commands.plan.measure import measure
from litlab.commands.plan.plan import Devices, Layout, estimate, layout_of, list_layouts
from litlab.errors import UserError
from litlab.parallel import ParallelPlan
from tests.conftest import BRIEF
from tests.litlab.runs.conftest import error

ROWS, SIZE = 32, 64
BLOCK = 4 * (SIZE * 2 * SIZE + 2 * SIZE + 2 * SIZE * SIZE + SIZE)  # bytes of its weights and biases
HEAD = 4 * (SIZE * 8 + 8)
NETWORK = 2 * BLOCK + HEAD
HIDDEN, OUTPUT = 4 * ROWS * 2 * SIZE, 4 * ROWS * SIZE  # bytes of what a block computes


def make_network() -> nn.Module:
    """Two blocks of two layers, and a head."""
    layers = {
        "wide": nn.Linear(SIZE, 2 * SIZE),
        "relu": nn.ReLU(),
        "narrow": nn.Linear(2 * SIZE, SIZE),
    }
    block = nn.Sequential(OrderedDict(layers))
    network = nn.Sequential(block, copy.deepcopy(block), nn.Linear(SIZE, 8))
    network.parallel_plan = ParallelPlan(blocks=["[01]"], columns=["*.wide"], rows=["*.narrow"])
    return network


class Uniques(nn.Linear):
    def forward(self, x):
        return super().forward(x) * len(x.detach().unique())


class Module(LightningModule):
    def __init__(self, network=make_network, loss=Tensor.sum):
        super().__init__()
        self.network, self.loss = network(), loss

    def training_step(self, batch, batch_idx):
        return self.loss(self.network(batch))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Manual(Module):
    automatic_optimization = False


@cache
def step_of(build=Module, *callbacks, precision="32-true"):
    return measure(build, [kind() for kind in callbacks], torch.ones(ROWS, SIZE), precision, False)


def planned(layout, count, *callbacks, batches=1, **settings):
    devices = Devices(1, count, 2**30)
    return estimate(layout, step_of(Module, *callbacks, **settings), devices, batches)


def test_one_device_and_ddp_and_nothing_left_behind():
    plan, steps = planned(Layout(), 1), 10 * 4  # AdamW counts them for each tensor
    kinds = (plans.PARAMETERS, plans.GRADIENTS, plans.OPTIMIZER, plans.AVERAGE)
    sizes = [NETWORK, NETWORK, 2 * NETWORK + steps, 0]
    assert (plan.sent, [plan.memory[kind] for kind in kinds]) == (0, sizes)
    # Of a block what relu returns and the output are kept; what relu gets is not, once it is left.
    stored = step_of().stored
    assert list(stored) == [1, 2]
    assert all(HIDDEN + OUTPUT <= size <= 2 * HIDDEN + OUTPUT for size in stored.values())
    assert logging.root.manager.disable == logging.NOTSET
    assert type(torch.ones(1)) is Tensor
    ddp = planned(Layout(), 4)
    # Buckets
    assert (ddp.memory.total(), ddp.sent) == (plan.memory.total() + NETWORK, 2 * NETWORK * 3 / 4)


def test_fsdp2_shards_everything_and_gathers_two_blocks():
    plan = planned(Layout("fsdp2"), 8, precision="bf16-mixed", batches=2)
    # Weights are gathered twice, but for the head, which is in no block; gradients are summed in
    # float32.
    assert plan.sent == 2 * ((4 * BLOCK + HEAD) / 2 + NETWORK) * 7 / 8
    assert plan.memory[plans.WEIGHTS] == NETWORK / 2
    assert plan.memory[plans.PARAMETERS] == plan.memory[plans.GRADIENTS] == NETWORK / 8
    assert plan.memory[plans.OPTIMIZER] == pytest.approx((2 * NETWORK + 40) / 8, abs=8)


def test_tensor_parallel_divides_layers_and_sums_their_outputs():
    two, eight = (planned(Layout("fsdp2", 2), count) for count in (2, 8))
    assert two.memory[plans.PARAMETERS] == 2 * BLOCK / 2 + HEAD
    # 2 (n - 1) / n of each block's output and of its input's gradient, n = 2
    assert two.sent == 2 * 2 * OUTPUT
    assert eight.memory[plans.PARAMETERS] == two.memory[plans.PARAMETERS] // 4


def test_what_changes_a_step():
    assert step_of(Module, ActivationCheckpointing).passes <= step_of().passes - HIDDEN
    assert planned(Layout(), 1, EMA).memory[plans.AVERAGE] == NETWORK
    half = planned(Layout(), 1, precision="bf16-true").memory
    assert (half[plans.PARAMETERS], half[plans.OPTIMIZER]) == (NETWORK / 2, NETWORK + 40)


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (
            lambda: Module(loss=lambda x: x.sum() * len(x.detach().unique())),
            r"--plan: training_step needs .*_unique2",
        ),
        (
            lambda: Module(partial(Uniques, SIZE, 8)),
            r"network needs the values .*_unique2.*; use --check",
        ),
        (Manual, "--plan: Manual steps its optimizers itself; use --check"),
    ],
)
def test_steps_that_need_numbers_name_operation_and_layer(build, line):
    with pytest.raises(UserError, match=line):
        step_of(build)


def test_the_command_prints_tables_or_one_line(run, small_data, tmp_path):
    fit = ["fit", *small_data["text"], *BRIEF, "--plan=1x2"]
    done = run(*fit, "--plan_memory=0.00001").check()
    for line in ("1x2 devices of 1e-05 GiB", "DDP's buckets", "None of the"):
        assert line in done.out + done.err
    says = "error: trainer.strategy: --plan does not know deepspeed"
    assert says in error(run(*fit, "--trainer.strategy=deepspeed"))
    assert not (tmp_path / "lightning_logs").exists()


def test_strategies_and_ways_to_compare():
    arguments = {"tensor_parallel_size": 4, "cpu_offload": True}
    assert layout_of(
        {"class_path": "litlab.parallel.ShardedStrategy", "init_args": arguments}
    ) == Layout("fsdp2", 4)
    names = ("fsdp", "auto", "ddp_find_unused_parameters_true")
    assert [*map(layout_of, names)] == [Layout("fsdp2"), Layout(), Layout()]
    ways = list(list_layouts(Devices(1, 2, 2**30), step_of()))
    assert ways == [Layout(), Layout("fsdp2"), Layout("fsdp2", 2)]
