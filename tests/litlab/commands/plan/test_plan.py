"""``fit --plan``: a step on fake tensors, for networks that are small enough to be counted by hand, and its lines."""

import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from litlab.callbacks import EMA, ActivationCheckpointing, Freeze, FreezeRule
from litlab.commands.plan.estimate import Devices, Estimate, Layout, estimate, layout_of, list_others
from litlab.commands.plan.measure import (
    ACTIVATIONS,
    FORWARD,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    UPDATE,
    WEIGHTS,
    measure,
)
from litlab.commands.plan.plan import find_devices
from litlab.errors import UserError
from litlab.parallel import ParallelPlan
from tests.litlab.conftest import CONFIGS

ROWS, SIZE = 32, 64
BLOCK = 4 * (SIZE * 2 * SIZE + 2 * SIZE + 2 * SIZE * SIZE + SIZE)  # bytes of its weights and biases
HEAD = 4 * (SIZE * 8 + 8)
NETWORK = 2 * BLOCK + HEAD
HIDDEN, OUTPUT = 4 * ROWS * 2 * SIZE, 4 * ROWS * SIZE  # bytes of what a block computes
MANY = Devices(2, 8, 2**30, is_gpu=True)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(SIZE, 2 * SIZE), nn.Linear(2 * SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(self.wide(x).relu())


class Network(nn.Module):
    parallel_plan = ParallelPlan(blocks=["blocks.*"], columns=["blocks.*.wide"], rows=["blocks.*.narrow"])

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(SIZE, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


class Module(LightningModule):
    def __init__(self, network: type[nn.Module] = Network, loss: Callable[[Tensor], Tensor] = Tensor.sum) -> None:
        super().__init__()
        self.network, self.loss = network(), loss

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.loss(self.network(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def step_of(build: Callable[[], LightningModule] = Module, *callbacks, **settings):
    return measure(build, list(callbacks), torch.ones(ROWS, SIZE), False, **{"max_epochs": 1, **settings})


def planned(layout: Layout, count: int, *callbacks, **settings) -> Estimate:
    return estimate(layout, step_of(Module, *callbacks, **settings), Devices(1, count, 2**30, is_gpu=False))


def test_one_device():
    step = step_of()
    plan = estimate(Layout(), step, Devices(1, 1, 2**30, is_gpu=False))
    steps = 10 * 4  # AdamW counts them for each tensor
    sizes = [plan.memory[kind] for kind in (PARAMETERS, GRADIENTS, OPTIMIZER)]
    assert (plan.phase, plan.sent, sizes) == (UPDATE, 0, [NETWORK, NETWORK, 2 * NETWORK + steps])
    # Of a block what relu returns and the output are kept; what relu gets is not, once it is left.
    kept = sum(size for use, size in step.peaks[FORWARD].items() if use.kind == ACTIVATIONS and use.block)
    assert 2 * (HIDDEN + OUTPUT) <= kept <= 2 * (HIDDEN + OUTPUT) + HIDDEN


def test_nothing_is_left_behind():
    before = dict(torch.nn.Module.__dict__)
    step_of()
    assert (logging.root.manager.disable, dict(torch.nn.Module.__dict__)) == (logging.NOTSET, before)
    assert type(torch.ones(1)) is Tensor
    assert torch.ones(1).device.type == "cpu"


def test_ddp_has_buckets_and_sums_gradients():
    alone, four = planned(Layout(), 1), planned(Layout(), 4)
    assert four.memory.total() == alone.memory.total() + NETWORK
    assert four.sent == 2 * NETWORK * 3 / 4


def test_an_average_is_one_more_copy():
    assert planned(Layout(), 1, EMA()).memory.total() == planned(Layout(), 1).memory.total() + NETWORK


@pytest.mark.parametrize(("batches", "kept"), [(1, 0), (2, NETWORK)])
def test_gradients_stay_while_they_are_accumulated(batches, kept):
    peak = step_of(accumulate_grad_batches=batches).peaks[FORWARD]
    assert sum(size for use, size in peak.items() if use.kind == GRADIENTS) == kept


@pytest.mark.parametrize(("precision", "width"), [("32-true", 1), ("bf16-mixed", 0.5)])
def test_fsdp2_shards_everything_and_gathers_two_blocks(precision, width):
    plan = planned(Layout("fsdp2"), 8, precision=precision)
    # Weights are gathered twice, but for the head, which is in no block; gradients are summed in float32.
    assert plan.sent == (width * (4 * BLOCK + HEAD) + NETWORK) * 7 / 8
    assert plan.memory[WEIGHTS] == width * NETWORK
    assert plan.memory[PARAMETERS] == NETWORK / 8
    assert plan.memory[OPTIMIZER] == pytest.approx((2 * NETWORK + 40) / 8, abs=8)


def test_weights_of_16_bits():
    plan = planned(Layout(), 1, precision="bf16-true")
    assert (plan.memory[PARAMETERS], plan.memory[OPTIMIZER]) == (NETWORK / 2, NETWORK + 40)


def test_tensor_parallel_divides_layers_and_sums_their_outputs():
    one, two, eight = (planned(Layout("fsdp2", tensor), count) for tensor, count in ((1, 1), (2, 2), (2, 8)))
    assert two.memory[PARAMETERS] == 2 * BLOCK / 2 + HEAD
    assert two.sent == 2 * 2 * OUTPUT  # 2 (n - 1) / n of each block's output and of its input's gradient, n = 2
    assert eight.memory[PARAMETERS] == two.memory[PARAMETERS] / 4
    kept = [estimate(Layout("fsdp2", tensor), step_of(), MANY) for tensor in (1, 2)]
    assert one.memory.total() > two.memory.total() > eight.memory.total()
    assert kept[0].memory[ACTIVATIONS] - kept[1].memory[ACTIVATIONS] >= 2 * HIDDEN / 2


def test_offload_leaves_activations_and_gathered_weights():
    plan = planned(Layout("offload"), 8)
    assert plan.host == pytest.approx((4 * NETWORK + 40) / 8, abs=8)
    assert not plan.memory[PARAMETERS] + plan.memory[OPTIMIZER] + plan.memory[GRADIENTS]
    assert plan.memory[ACTIVATIONS] > 0


def test_activation_checkpointing_keeps_what_goes_into_blocks():
    kept, all_ = step_of(Module, ActivationCheckpointing()).peaks[FORWARD], step_of().peaks[FORWARD]
    activations = [sum(size for use, size in peak.items() if use.kind == ACTIVATIONS) for peak in (kept, all_)]
    assert activations[0] <= activations[1] - HIDDEN


def test_a_stage_of_a_pipeline_has_its_share_of_the_blocks():
    plan = planned(Layout("pipeline"), 2)
    assert plan.memory[PARAMETERS] == NETWORK - BLOCK
    assert plan.sent == 2 * OUTPUT + HEAD
    with pytest.raises(UserError, match="3 stages need at least 3 blocks, and there are 2"):
        planned(Layout("pipeline"), 3)


def test_what_is_trained_later_needs_memory_then():
    freeze = Freeze([FreezeRule("network.blocks.0", 2)])
    assert planned(Layout(), 1, freeze, max_epochs=3).memory[GRADIENTS] == NETWORK
    assert planned(Layout(), 1, freeze, max_epochs=2).memory[GRADIENTS] == NETWORK - BLOCK


def test_weights_that_are_tied_count_once():
    class Tied(Network):
        def __init__(self) -> None:
            super().__init__()
            first, second = self.blocks.children()
            second.wide.weight = first.wide.weight  # pyright: ignore[reportAttributeAccessIssue]

    plan = estimate(Layout(), step_of(lambda: Module(Tied)), Devices(1, 1, 2**30, is_gpu=False))
    assert plan.memory[GRADIENTS] == NETWORK - 4 * SIZE * 2 * SIZE


class Odd(Network):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[x > 0].view(-1, SIZE))


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (lambda: Module(Odd), r"--plan: network can't do without .* \(aten\.nonzero.*\); use --check, which measures"),
        (lambda: Module(loss=lambda x: x.sum() * len(x.detach().unique())), r"--plan: training_step can't .*_unique2"),
        (lambda: Module(loss=lambda x: x.sum() * float(x.detach().numpy().mean())), r"\.numpy\(\) is not supported"),
    ],
)
def test_steps_that_need_numbers_name_operation_and_layer(build, line):
    with pytest.raises(UserError, match=line):
        step_of(build)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_recurrent_layers(kind):
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(SIZE, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0]

    assert step_of(lambda: Module(Recurrent)).alive.total() > 0


def test_models_that_step_their_optimizers_are_refused():
    def build() -> LightningModule:
        model = Module()
        model.automatic_optimization = False
        return model

    with pytest.raises(UserError, match="--plan: Module steps its optimizers itself; use --check"):
        step_of(build)


def test_tables_and_nothing_else(run, short, tmp_path):
    config = CONFIGS / "text.yaml"
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    done = run("fit", "--config", config, *short(config), "--plan", "1x2", "--plan_memory", "0.001")
    assert done.code == 0, done.err
    for row in ("Plan for 1 x 2 processes", "optimizer state", "DDP's buckets", "fsdp2.yaml", "no"):
        assert row in done.out
    after = {path for path in tmp_path.rglob("*") if not {"cache", "data"} & set(path.parts)}
    assert after <= before


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--plan=1x2", "--check"], "--plan: it looks at a fit from its start; leave --resume, --ckpt_path and"),
        (["--plan=1x2", "--ckpt_path=last.ckpt"], "--plan: it looks at a fit from its start; leave"),
        (["--plan=1x2", "--seeds=0,1"], "--seeds: it doesn't go together with --resume, --check, --plan"),
        (["--plan=8"], "--plan: '8' is not valid; give nodes x devices of each"),
        (["--plan=0x8"], "--plan: '0x8' is not valid"),
        (["--plan=1x2", "--trainer.strategy=deepspeed"], "trainer.strategy: --plan does not know deepspeed"),
    ],
)
def test_what_does_not_go_together_is_one_line(run, short, tmp_path, flags, line):
    config = CONFIGS / "text.yaml"
    done = run("fit", "--config", config, *short(config), *flags)
    assert (done.code, done.err.count("error:"), done.out) == (2, 1, ""), done.err
    assert f"error: {line}" in done.err
    assert not (tmp_path / "lightning_logs").exists()


def test_devices_are_the_gpus_of_this_machine_unless_their_memory_is_given(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # there is none
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(total_memory=24 * 2**30))
    assert find_devices("2x4", None, "auto") == Devices(2, 4, 24 * 2**30, is_gpu=True)
    assert find_devices("2x4", 80, "auto") == Devices(2, 4, 80 * 2**30, is_gpu=True)
    assert not find_devices("2x4", None, "cpu").is_gpu


@pytest.mark.parametrize("name", ["auto", "ddp", "ddp_find_unused_parameters_true", "DDPStrategy"])
def test_strategies_that_share_batches(name):
    assert layout_of(name) == Layout()


def test_strategies_that_divide_the_model():
    arguments = {"tensor_parallel_size": 4, "cpu_offload": True}
    assert layout_of({"class_path": "litlab.parallel.ShardedStrategy", "init_args": arguments}) == Layout("offload", 4)
    assert layout_of("fsdp") == layout_of("fsdp2") == Layout("fsdp2")
    assert layout_of("fsdp_cpu_offload") == Layout("offload")
    path = {"class_path": "litlab.parallel.PipelineStrategy", "init_args": {"microbatches": 8}}
    assert layout_of(path) == Layout("pipeline", microbatches=8)


def test_ways_to_compare_with():
    ways = list(list_others(Layout(), MANY, is_divisible=True))
    assert [way.tensor for way in ways if way.kind == "fsdp2" and not way.checkpointing] == [1, 2, 4, 8]
    assert Layout() not in ways
    assert {way.tensor for way in list_others(Layout(), MANY, is_divisible=False)} == {1}
    layout = Layout("fsdp2", 4, checkpointing=True)
    assert layout.overlays(MANY) == ["fsdp2_tensor_parallel", "activation_checkpointing"]
    assert layout.flags(MANY)[-1] == "--trainer.strategy.tensor_parallel_size=4"
