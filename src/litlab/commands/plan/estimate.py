"""What each way to divide a training needs of a device: arithmetic on the step of one device."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from numpy import array_split

from litlab.commands.plan.measure import Step
from litlab.errors import UserError

PARAMETERS, GRADIENTS, OPTIMIZER, AVERAGE = "parameters", "gradients", "optimizer state", "buffers, averages"
ACTIVATIONS, WEIGHTS, BUCKETS = "activations, temporary", "copies of weights", "DDP's buckets"


@dataclass(frozen=True)
class Devices:
    """Nodes, devices of each, and the bytes of a device."""

    nodes: int
    per_node: int
    memory: float

    @property
    def count(self) -> int:
        return self.nodes * self.per_node


@dataclass(frozen=True)
class Layout:
    """One way: devices share the batches alone (ddp), all of the training's state (fsdp2), or the blocks (pipeline)."""

    kind: str = "ddp"
    tensor: int = 1  # devices that share each layer, with fsdp2

    @property
    def title(self) -> str:
        return self.kind if self.tensor == 1 else f"{self.kind}, tensor parallel {self.tensor}"

    def flags(self, devices: Devices) -> list[str]:
        if devices.count == 1:
            return []
        if self.kind == "ddp":
            return ["--trainer.strategy=ddp"]
        sizes = [f"--trainer.strategy.tensor_parallel_size={self.tensor}"] if self.tensor > 1 else []
        return [f"--config=configs/with/{self.kind}.yaml", *sizes]


def layout_of(strategy: Any) -> Layout:
    """Return the way of a config by its ``trainer.strategy``, a name or a class path with its arguments."""
    name, settings = strategy, {}
    if not isinstance(strategy, str):
        name, settings = strategy["class_path"].rpartition(".")[2], strategy.get("init_args") or {}
    kinds = {"auto": "ddp", "ddp": "ddp", "fsdp": "fsdp2", "sharded": "fsdp2", "pipeline": "pipeline"}
    for start, kind in kinds.items():
        if name.lower().startswith(start):
            return Layout(kind, settings.get("tensor_parallel_size", 1))
    raise UserError(f"trainer.strategy: --plan does not know {name}; it knows ddp, fsdp, fsdp2 and pipeline")


def list_layouts(devices: Devices, step: Step) -> Iterator[Layout]:
    """Yield the ways that a network and the devices allow, the simplest first."""
    yield Layout()
    if devices.count > 1:
        sizes = [size for size in (2, 4, 8) if step.rows and devices.per_node % size == 0]
        yield from (Layout("fsdp2", tensor) for tensor in (1, *sizes))
        if devices.count <= len(step.kept):
            yield Layout("pipeline")


@dataclass
class Estimate:
    """Memory and traffic of one device in a step, in bytes."""

    layout: Layout  # of what
    memory: Counter[str]  # by kind, in the forward and backward pass or in the optimizer's step, whichever needs more
    sent: float  # to other devices


def estimate(layout: Layout, step: Step, devices: Devices, batches: int = 1) -> Estimate:
    """Return what a layout needs, with so many batches to a step."""
    shards = devices.count // layout.tensor if layout.kind == "fsdp2" else 1
    stages = devices.count if layout.kind == "pipeline" else 1
    blocks = list(step.kept)
    if stages > max(1, len(blocks)):
        raise UserError(f"--plan: {stages} stages need at least {stages} blocks, and there are {len(blocks)}")
    parts = [_take_part(step, [0, *part], layout.tensor, shards) for part in array_split(blocks, stages)]
    memory = max(parts, key=Counter.total)
    gradients = memory[GRADIENTS] * shards

    # Traffic
    sent = 0.0
    if layout.kind == "ddp" and devices.count > 1:
        memory[BUCKETS] = gradients
        sent = _ring(gradients, devices.count)
    if layout.kind == "pipeline":
        sent = (2 * step.between + _ring(_take_part(step, [0])[GRADIENTS], stages)) * batches
    if layout.tensor > 1:
        output = step.between // 2 if step.casts else step.between
        sent = _ring(2 * step.rows * output, layout.tensor) * batches
    if shards > 1:
        # Weights are gathered block by block, the next one early; those outside of the blocks for the whole pass.
        sizes = [_take_part(step, [block], layout.tensor)[PARAMETERS] for block in (0, *blocks)]
        outside, *inside = (size // 2 if step.casts else size for size in sizes)
        memory[WEIGHTS] = outside + sum(sorted(inside)[-2:])
        # All-gather twice, reduce-scatter once: each is half of what a sum sends.
        sent += _ring(outside + 2 * sum(inside) + gradients, shards) / 2 * batches

    # The optimizer's step, or both passes
    update = Counter(memory)
    update[ACTIVATIONS], update[WEIGHTS] = int(step.update * memory[PARAMETERS] / sum(step.parameters)), 0
    if batches == 1 and stages == 1:
        memory[GRADIENTS] = 0  # they come when activations go
    return Estimate(layout, max(memory, update, key=Counter.total), sent)


def _take_part(step: Step, blocks: Collection[int], tensor: int = 1, shards: int = 1) -> Counter[str]:
    """Return bytes by kind, in the forward and backward pass, of a device that has its share of some blocks."""
    parameters = sum(step.parameters[block] - step.divided[block] * (tensor - 1) // tensor for block in blocks)
    share = parameters / shards / sum(step.parameters)
    elsewhere = sum(size for block, size in step.kept.items() if block not in blocks)
    # What a layer gets is whole, before and after a norm; what is between two layers is divided.
    divided = max(0, sum(step.kept.values()) - 2 * step.rows * step.between)
    activations = step.passes - step.casts - elsewhere - divided * (tensor - 1) // tensor
    return Counter({
        PARAMETERS: parameters // shards, GRADIENTS: int(step.gradients * share), OPTIMIZER: int(step.states * share),
        AVERAGE: int(step.average * share), WEIGHTS: int(step.casts * share), ACTIVATIONS: activations,
    })  # fmt: skip


def _ring(size: float, ranks: int) -> float:
    return 2 * size * (ranks - 1) / ranks
