"""What a layout needs of each device: arithmetic on the step of one device."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from numpy import array_split

from litlab.errors import UserError
from litlab.planning.layout import Devices, Layout
from litlab.planning.ledger import (
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

BUCKETS = "DDP's buckets"
USABLE = 0.9  # of a GPU: CUDA, NCCL and cuDNN keep some memory for themselves, and free memory is in pieces

Memory = dict[str, Counter[str]]  # bytes by phase and kind


@dataclass
class Estimate:
    """Memory and traffic of one device in a step, in bytes.

    Args:
        layout: Of what.
        memory: By phase and kind, where it is highest.
        sent: By collective and what it is for.
        host: Host memory for each device, with CPU offload.
        refused: Why it can't be; then the rest is empty.
    """

    layout: Layout
    memory: Memory = field(default_factory=dict)
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    host: float = 0
    refused: str = ""

    @property
    def phase(self) -> str:
        """The one that needs most."""
        return max(self.memory, key=lambda phase: self.memory[phase].total())

    @property
    def total(self) -> float:
        """The most memory at any time."""
        return self.memory[self.phase].total()

    def fits(self, devices: Devices) -> bool:
        """Return whether the devices' memory is enough."""
        return not self.refused and self.total <= devices.memory * (USABLE if devices.is_gpu else 1.0)


def estimate(layout: Layout, step: Ledger, devices: Devices, batches: int = 1, is_mixed: bool = False) -> Estimate:
    """Return what a layout needs.

    Args:
        layout: How the training is divided.
        step: That of one device, with activation checkpointing if the layout has it.
        devices: The devices.
        batches: How many there are to a step.
        is_mixed: Whether weights are computed with in half of their bytes.

    Raises:
        UserError: If the network has too few blocks for a pipeline.
    """
    if layout.kind == "pipeline":
        return _estimate_pipeline(layout, step, devices.count, batches)
    shards = devices.count // layout.tensor if layout.kind == "fsdp2" else 1
    result = Estimate(layout, _divide(step, layout.tensor, shards))
    gradients = result.memory[UPDATE][GRADIENTS] * shards

    if layout.kind == "ddp" and devices.count > 1:
        for kinds in result.memory.values():
            kinds[BUCKETS] = gradients
        result.sent["all-reduce", "gradients"] = _ring(gradients, devices.count)

    if layout.tensor > 1:  # outputs in the forward pass, and gradients of inputs in the backward pass
        result.sent["all-reduce", "activations"] = _ring(2 * step.summed, layout.tensor) * batches

    if shards > 1:
        # Weights are gathered block by block, the next one early; those outside of the blocks for the whole pass.
        weights = _size_blocks(step, layout.tensor, 0.5 if is_mixed else 1.0)
        outside = weights.pop("", 0)
        for phase in (FORWARD, BACKWARD):
            result.memory[phase][WEIGHTS] = outside + 2 * max(weights.values(), default=0)
        result.sent["all-gather", "weights"] = _ring(outside / 2 + weights.total(), shards) * batches
        result.sent["reduce-scatter", "gradients"] = _ring(gradients / 2, shards) * batches

    if layout.offload:
        update = result.memory.pop(UPDATE)
        result.host = sum(update[kind] for kind in SHARDED)
        for kinds in result.memory.values():
            for kind in SHARDED:
                del kinds[kind]
    return result


def _estimate_pipeline(layout: Layout, step: Ledger, stages: int, batches: int) -> Estimate:
    """Return what the stage needs that needs most: some of the blocks, and all that is outside of them."""
    if stages > len(step.blocks):
        raise UserError(f"{stages} stages need at least {stages} blocks, and there are {len(step.blocks)}")
    results = []
    for blocks in array_split(list(step.blocks), stages):
        memory = _divide(step, blocks={"", *blocks})
        # When the first micro-batch has gone back, all gradients are there; those of the others are added to them.
        memory[BACKWARD] = memory[FORWARD].copy()
        memory[BACKWARD][ACTIVATIONS] *= 1 - 1 / layout.microbatches
        memory[BACKWARD][GRADIENTS] = memory[UPDATE][GRADIENTS]
        results.append(Estimate(layout, memory))
    result = max(results, key=lambda one: one.total)

    outside = sum(size for use, size in step.peaks[UPDATE].items() if use.kind == GRADIENTS and not use.block)
    result.sent["send", "activations and their gradients"] = 2 * max(step.blocks.values()) * batches
    result.sent["all-reduce", "gradients outside of blocks"] = _ring(outside, stages) * batches
    return result


def _divide(step: Ledger, tensor: int = 1, shards: int = 1, blocks: Collection[str] | None = None) -> Memory:
    """Return the memory of a device that has some of the blocks, or all, and its share of each."""
    memory: Memory = {}
    for phase, peak in step.peaks.items():
        memory[phase] = Counter()
        for use, size in peak.items():
            if blocks is None or use.block in blocks:
                parts = (tensor if use.is_divided else 1) * (shards if use.kind in SHARDED else 1)
                memory[phase][use.kind] += size / parts

    # An optimizer computes with as much as it updates.
    whole = sum(size for use, size in step.peaks[UPDATE].items() if use.kind == PARAMETERS)
    memory[UPDATE][TEMPORARY] *= memory[UPDATE][PARAMETERS] / whole
    return memory


def _size_blocks(step: Ledger, tensor: int, width: float) -> Counter[str]:
    """Return the bytes of each block's weights."""
    sizes: Counter[str] = Counter()
    for use, size in step.peaks[UPDATE].items():
        if use.kind == PARAMETERS:
            sizes[use.block] += size * width / (tensor if use.is_divided else 1)
    return sizes


def _ring(size: float, ranks: int) -> float:
    """Return what each of some processes sends to sum what all have."""
    return 2 * size * (ranks - 1) / ranks
