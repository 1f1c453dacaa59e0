"""What a step on fake tensors needs, for networks that are small enough to be counted by hand."""

from collections.abc import Callable

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import Tensor, nn

from litlab.callbacks import FreeGradients
from litlab.errors import UserError
from litlab.parallel import ParallelPlan
from litlab.planning.estimate import Estimate, estimate
from litlab.planning.layout import Devices, Layout
from litlab.planning.ledger import ACTIVATIONS, BACKWARD, FORWARD, GRADIENTS, OPTIMIZER, PARAMETERS
from litlab.planning.measure import Job, measure
from litlab.planning.plan import tried
from litlab.planning.step import Measured

ROWS, SIZE = 32, 64
BLOCK = 4 * (SIZE * 2 * SIZE + 2 * SIZE + 2 * SIZE * SIZE + SIZE)  # bytes of its weights and biases
HEAD = 4 * (SIZE * 8 + 8)
NETWORK = 2 * BLOCK + HEAD
HIDDEN, OUTPUT = 4 * ROWS * 2 * SIZE, 4 * ROWS * SIZE  # bytes of what a block computes


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
    def __init__(self, loss: Callable[[Tensor], Tensor] = Tensor.sum) -> None:
        super().__init__()
        self.network, self.loss = Network(), loss

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.loss(self.network(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def job(module: Callable[[], LightningModule] = Module, accumulated: int = 1, average: bool = False, **settings) -> Job:
    def trainer(**others) -> Trainer:
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        return Trainer(max_epochs=1, enable_model_summary=False, **quiet, **settings, **others)

    data = LightningDataModule()
    return Job(
        lambda: (module(), [FreeGradients()]), trainer, data, torch.ones(ROWS, SIZE), accumulated, False, average
    )


def devices(count: int) -> Devices:
    return Devices(1, count, 2**30, gpus=False)


def planned(layout: Layout, count: int, what: Job | None = None) -> tuple[Measured, Estimate]:
    what = what or job()
    found = measure(what, layout, devices(count))
    return found, estimate(layout, found, devices(count), what)


def test_one_device():
    found, whole = planned(Layout("ddp"), 1)
    steps = 10 * 4  # AdamW counts them for each tensor
    assert (found.parameters, found.gradients, found.state) == (NETWORK, NETWORK, 2 * NETWORK + steps)
    # Of a block what relu returns and the output are kept; what relu gets is not.
    assert [block.activations for block in found.blocks] == [HIDDEN + OUTPUT] * 2
    assert found.peaks[FORWARD][PARAMETERS] == NETWORK
    assert found.peaks[BACKWARD][ACTIVATIONS] <= 2 * (HIDDEN + OUTPUT) + 4 * ROWS * 8 + 8
    assert (whole.highest[GRADIENTS], whole.highest[OPTIMIZER]) == (NETWORK, found.state)
    assert whole.phase == "update"
    assert not whole.sent


def test_ddp_has_buckets_and_sums_gradients():
    (_, alone), (_, four) = planned(Layout("ddp"), 1), planned(Layout("ddp"), 4)
    assert four.total == alone.total + NETWORK
    assert four.sent == {("all-reduce", "gradients"): 2 * NETWORK * 3 // 4}


def test_an_average_is_one_more_copy():
    (_, without), (_, averaged) = planned(Layout("ddp"), 1), planned(Layout("ddp"), 1, job(average=True))
    assert averaged.total == without.total + NETWORK


def test_gradients_stay_while_they_are_accumulated():
    found, _ = planned(Layout("ddp"), 1, job(accumulated=8))
    assert found.peaks[FORWARD][GRADIENTS] == NETWORK
    assert planned(Layout("ddp"), 1)[0].peaks[FORWARD][GRADIENTS] == 0


def test_fsdp2_shards_everything_and_gathers_blocks():
    found, whole = planned(Layout("sharded"), 8)
    assert (found.parameters, found.gradients) == (NETWORK // 8, NETWORK // 8)
    assert found.state == 2 * NETWORK // 8 + 40
    # The head, which is in no block, stays whole until the backward pass.
    assert whole.sent == {
        ("all-gather", "weights"): (4 * BLOCK + HEAD) * 7 // 8,
        ("reduce-scatter", "gradients"): NETWORK * 7 // 8,
    }


def test_weights_that_are_kept_are_gathered_once():
    assert planned(Layout("sharded", reshard=False), 8)[1].sent["all-gather", "weights"] == NETWORK * 7 // 8


def test_sharded_weights_are_sent_in_bfloat16_and_gradients_in_float32():
    _, whole = planned(Layout("sharded"), 8, job(precision="bf16-mixed"))
    assert whole.sent["all-gather", "weights"] == (4 * BLOCK + HEAD) // 2 * 7 // 8
    assert whole.sent["reduce-scatter", "gradients"] == NETWORK * 7 // 8


def test_tensor_parallel_divides_layers_and_sums_their_outputs():
    found, whole = planned(Layout("sharded", tensor=2), 2)
    bias = 4 * SIZE
    assert found.parameters == 2 * ((BLOCK - bias) // 2 + bias) + HEAD
    assert found.blocks[0].activations <= HIDDEN // 2 + 2 * OUTPUT  # which is there before and after it is summed
    assert whole.sent["all-reduce", "activations"] == 2 * OUTPUT  # 2 (n - 1) / n of each block's output, n = 2


def test_both_together():
    found, _ = planned(Layout("sharded", tensor=2), 8)
    assert found.parameters < planned(Layout("sharded", tensor=2), 2)[0].parameters / 3.5


def test_offload_leaves_activations_and_gathered_weights():
    found, whole = planned(Layout("sharded", offload=True), 8)
    assert whole.host == found.parameters + found.gradients + found.state
    assert not whole.memory[PARAMETERS] + whole.memory[OPTIMIZER] + whole.memory[GRADIENTS]
    assert whole.memory[ACTIVATIONS] > 0


def test_activation_checkpointing_keeps_what_goes_into_blocks():
    found, _ = planned(Layout("ddp", checkpointing=True), 1)
    assert [block.activations for block in found.blocks] == [OUTPUT] * 2


def test_a_stage_of_a_pipeline_has_its_share_of_the_blocks():
    found, whole = planned(Layout("pipeline"), 2)
    assert whole.highest[PARAMETERS] == NETWORK - BLOCK
    assert whole.sent["send", "activations"] == OUTPUT
    assert found.blocks[0].parameters == BLOCK
    with pytest.raises(UserError, match="3 stages need at least 3 blocks, and there are 2"):
        planned(Layout("pipeline"), 3)


def test_blocks_beside_each_other_are_no_pipeline():
    class Branches(Network):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(sum(block(x) for block in self.blocks))

    def module() -> Module:
        made = Module()
        made.network = Branches()
        return made

    with pytest.raises(UserError, match="the network's blocks are not called one after the other"):
        planned(Layout("pipeline"), 2, job(module))


def test_layers_that_can_not_be_divided():
    with pytest.raises(UserError, match="has 128 features, which tensor_parallel_size 3 does not divide"):
        planned(Layout("sharded", tensor=3), 3)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda x: x[x > 0].sum(), r"aten\.nonzero"),
        (lambda x: x.sum() * float(x.detach().numpy().mean()), r"\.numpy\(\) is not supported"),
        (lambda x: x.sum() * len(x.detach().unique()), r"_unique2"),
    ],
)
def test_steps_that_need_numbers(loss, reason):
    with pytest.raises(UserError, match=f"--plan: a training step needs a tensor's numbers .*{reason}.*--check"):
        planned(Layout("ddp"), 1, job(lambda: Module(loss)))


def test_a_model_that_fails_when_it_is_divided_is_not_known():
    def loss(x: Tensor) -> Tensor:
        if torch.distributed.is_initialized():
            raise ValueError("one process only")
        return x.sum()

    shared = tried(job(lambda: Module(loss)), Layout("sharded"), devices(2), {})
    assert shared.refused == "not known, as its step fails: one process only"
    assert not tried(job(lambda: Module(loss)), Layout("ddp"), devices(2), {}).refused


def test_a_bug_of_the_planner_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("litlab.planning.measure.Sharded", None)
    with pytest.raises(TypeError, match="not callable"):
        tried(job(), Layout("sharded"), devices(2), {})
