"""What each way to divide a training needs of a device: arithmetic on the step of one device."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from numpy import array_split

from litlab.commands.plan.measure import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    PARAMETERS,
    SHARDED,
    TEMPORARY,
    UPDATE,
    WEIGHTS,
    Ledger,
)
from litlab.errors import UserError

# By how the names of strategies begin.
KINDS = {"auto": "ddp", "single": "ddp", "ddp": "ddp", "fsdp": "fsdp2", "sharded": "fsdp2", "pipeline": "pipeline"}


@dataclass(frozen=True)
class Devices:
    """Nodes, devices of each, and the bytes of a device; GPUs, or processes on a CPU."""

    nodes: int
    per_node: int
    memory: float
    is_gpu: bool

    @property
    def count(self) -> int:
        """All of them."""
        return self.nodes * self.per_node

    @property
    def usable(self) -> float:
        """Bytes without what CUDA, NCCL and cuDNN keep for themselves, and what is lost in free pieces."""
        return self.memory * (0.9 if self.is_gpu else 1)


@dataclass(frozen=True)
class Layout:
    """One way.

    Args:
        kind: What devices share: ddp, the batches alone; fsdp2, weights, gradients and optimizer state as well;
            offload, the same with these in host memory; pipeline, the blocks.
        tensor: Devices that share each layer, with fsdp2.
        checkpointing: Whether activations within blocks are computed again.
        microbatches: Parts of a batch that a pipeline has under way at once.
    """

    kind: str = "ddp"
    tensor: int = 1
    checkpointing: bool = False
    microbatches: int = 4

    def overlays(self, devices: Devices) -> list[str]:
        """Return the names of the overlays that make it."""
        names = [self.kind] if devices.count > 1 else []
        if self.tensor > 1:
            names = ["tensor_parallel" if self.tensor == devices.count else "fsdp2_tensor_parallel"]
        return [*names, "activation_checkpointing"] if self.checkpointing else names

    def flags(self, devices: Devices) -> list[str]:
        """Return what to add to a command line."""
        flags = [f"--config=configs/with/{name}.yaml" for name in self.overlays(devices)]
        return [*flags, f"--trainer.strategy.tensor_parallel_size={self.tensor}"] if self.tensor > 1 else flags


def layout_of(strategy: Any) -> Layout:
    """Return the way of a config's ``trainer.strategy``, a name or a class path with its arguments.

    Raises:
        UserError: If a plan does not know the strategy.
    """
    settings = {} if isinstance(strategy, str) else strategy.get("init_args") or {}
    name = strategy if isinstance(strategy, str) else strategy["class_path"].rpartition(".")[2]
    kind = next((kind for start, kind in KINDS.items() if name.lower().startswith(start)), None)
    if kind is None:
        raise UserError(f"trainer.strategy: --plan does not know {name}; it knows ddp, fsdp, fsdp2 and pipeline")
    if name == "fsdp_cpu_offload" or settings.get("cpu_offload"):
        kind = "offload"
    return Layout(kind, settings.get("tensor_parallel_size", 1), microbatches=settings.get("microbatches", 4))


def list_others(own: Layout, devices: Devices, is_divisible: bool) -> Iterator[Layout]:
    """Yield the ways to compare one with, the simplest first.

    Args:
        own: The config's own.
        devices: The devices.
        is_divisible: Whether the network says which of its layers can be divided.
    """
    layouts = [Layout()]
    if devices.count > 1:
        sizes = [size for size in (2, 4, 8) if is_divisible and devices.per_node % size == 0]
        layouts += [Layout("fsdp2"), *(Layout("fsdp2", size) for size in sizes)]
        layouts += [Layout("pipeline"), Layout("offload")]
    for layout in layouts:
        for checkpointing in sorted({own.checkpointing, True}):
            other = replace(layout, checkpointing=checkpointing)
            if other != own:
                yield other


@dataclass
class Estimate:
    """Memory and traffic of one device in a step, in bytes.

    Args:
        layout: Of what.
        phase: The one that needs most memory.
        memory: By kind, then.
        sent: To other devices.
        host: Host memory for each device, with CPU offload.
        refused: Why it can't be; then the rest is empty.
    """

    layout: Layout
    phase: str = ""
    memory: Counter[str] = field(default_factory=Counter)
    sent: float = 0
    host: float = 0
    refused: str = ""

    def fits(self, devices: Devices) -> bool:
        """Return whether the devices' memory is enough."""
        return not self.refused and self.memory.total() <= devices.usable


def estimate(layout: Layout, step: Ledger, devices: Devices, batches: int = 1) -> Estimate:
    """Return what a layout needs.

    Args:
        layout: How the training is divided.
        step: That of one device, with activation checkpointing if the layout has it.
        devices: The devices.
        batches: How many there are to a step.

    Raises:
        UserError: If the network has too few blocks for a pipeline.
    """
    shards = devices.count // layout.tensor if layout.kind in ("fsdp2", "offload") else 1
    stages = devices.count if layout.kind == "pipeline" else 1
    numbers = list(step.blocks.values())
    if stages > max(1, len(numbers)):
        raise UserError(f"{stages} stages need at least {stages} blocks, and there are {len(numbers)}")
    parts = [_divide(step, [0, *blocks], layout.tensor, shards) for blocks in array_split(numbers, stages)]
    memory = max(parts, key=lambda part: max(kinds.total() for kinds in part.values()))
    gradients = memory[UPDATE][GRADIENTS] * shards
    sent = host = 0.0

    if layout.kind == "ddp" and devices.count > 1:
        for kinds in memory.values():
            kinds["DDP's buckets"] = gradients
        sent = _ring(gradients, devices.count)

    if layout.kind == "pipeline":
        # When the first micro-batch has gone back, all gradients are there; those of the others are added to them.
        memory[BACKWARD] = memory[FORWARD] | Counter({GRADIENTS: gradients})
        memory[BACKWARD][ACTIVATIONS] -= memory[FORWARD][ACTIVATIONS] // layout.microbatches
        sent = (2 * step.between + _ring(_divide(step, [0])[UPDATE][GRADIENTS], stages)) * batches

    if layout.tensor > 1:
        sent = _ring(step.summed, layout.tensor) * batches

    if shards > 1:
        # Weights are gathered block by block, the next one early; those outside of the blocks for the whole pass.
        weights = [_divide(step, [number], layout.tensor)[UPDATE][PARAMETERS] for number in (0, *numbers)]
        outside, *blocks = (size // 2 if step.is_mixed else size for size in weights)
        for phase in (FORWARD, BACKWARD):
            memory[phase][WEIGHTS] = outside + sum(sorted(blocks)[-2:])
        # All-gather twice, reduce-scatter once: each is half of what a sum sends.
        sent += _ring(outside + 2 * sum(blocks) + gradients, shards) / 2 * batches

    if layout.kind == "offload":
        host = sum(memory[UPDATE][kind] for kind in SHARDED)
        del memory[UPDATE]
        for kinds in memory.values():
            kinds -= Counter({kind: kinds[kind] for kind in SHARDED})
    phase = max(memory, key=lambda phase: memory[phase].total())
    return Estimate(layout, phase, memory[phase], sent, host)


def _divide(step: Ledger, blocks: Collection[int], tensor: int = 1, shards: int = 1) -> dict[str, Counter[str]]:
    """Return bytes by phase and kind of a device that has its share of some blocks; 0 is what is in none."""
    memory: dict[str, Counter[str]] = {}
    for phase, peak in step.peaks.items():
        memory[phase] = Counter()
        for use, size in peak.items():
            if use.block in blocks:
                parts = (tensor if use.is_divided else 1) * (shards if use.kind in SHARDED else 1)
                memory[phase][use.kind] += size // parts

    # An optimizer computes with as much as it updates.
    whole = sum(size for use, size in step.peaks[UPDATE].items() if use.kind == PARAMETERS)
    memory[UPDATE][TEMPORARY] = memory[UPDATE][TEMPORARY] * memory[UPDATE][PARAMETERS] // whole
    return memory


def _ring(size: float, ranks: int) -> float:
    """Return what each of some processes sends to sum what all have."""
    return 2 * size * (ranks - 1) / ranks
