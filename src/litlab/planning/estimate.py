"""What a layout needs on each device, from what was measured."""

from collections import Counter
from dataclasses import dataclass, field

from numpy import array_split

from litlab.errors import UserError
from litlab.planning.layout import Devices, Layout
from litlab.planning.ledger import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    HOST,
    KINDS,
    OPTIMIZER,
    TEMPORARY,
    UPDATE,
    WEIGHTS,
)
from litlab.planning.measure import Job
from litlab.planning.step import Block, Measured

BUCKETS, AVERAGE = "DDP's buckets", "average of weights"
ALL_KINDS = (*KINDS, BUCKETS, AVERAGE)
# CUDA, NCCL and cuDNN keep some memory for themselves, and free memory is in pieces.
USABLE = 0.9
WHAT = {
    ("all-gather", FORWARD): "weights",
    ("all-gather", BACKWARD): "weights",
    ("reduce-scatter", BACKWARD): "gradients",
    ("all-reduce", FORWARD): "activations",
    ("all-reduce", BACKWARD): "gradients of activations",
}


@dataclass
class Estimate:
    """Memory and traffic of one device in a step, in bytes.

    Args:
        layout: Of what.
        memory: By kind, at the moment when it is highest.
        highest: By kind, the most of it at any time.
        phase: Which moment that is: forward, backward or update.
        sent: By collective and what it is for.
        host: Bytes of host memory for each device, with CPU offload.
        refused: Why it can't be; then the rest is empty.
    """

    layout: Layout
    memory: Counter[str] = field(default_factory=Counter)
    highest: Counter[str] = field(default_factory=Counter)
    phase: str = ""
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    host: int = 0
    refused: str = ""

    @property
    def total(self) -> int:
        """All of its memory."""
        return self.memory.total()

    def fits(self, devices: Devices) -> bool:
        """Return whether the devices' memory is enough."""
        return not self.refused and self.total <= devices.memory * (USABLE if devices.gpus else 1.0)


def estimate(layout: Layout, measured: Measured, devices: Devices, job: Job) -> Estimate:
    """Return what a layout needs.

    Args:
        layout: How the training is divided.
        measured: One step of it; of one device, for DDP and pipelines.
        devices: The devices.
        job: What is trained.

    Raises:
        UserError: If the model can't be divided like that.
    """
    peaks = {phase: peak.copy() for phase, peak in measured.peaks.items()}
    for phase in {FORWARD, BACKWARD} & set(peaks):
        peaks[phase][OPTIMIZER] = measured.state
    average = measured.average if job.average else 0
    if layout.offload:
        peaks = {phase: peak.copy() for phase, peak in measured.device_peaks.items() if phase != UPDATE}
    sent = _sent(measured, job)
    if layout.kind == "ddp" and devices.count > 1:
        for peak in peaks.values():
            peak[BUCKETS] = measured.gradients
        sent["all-reduce", "gradients"] = _ring(measured.gradients, devices.count)
        if measured.buffers:
            sent["broadcast", "buffers"] = measured.buffers * job.accumulated
    if average and not layout.offload:
        for peak in peaks.values():
            peak[AVERAGE] = average
    if layout.kind == "pipeline":
        peaks, sent = _pipeline(peaks, measured, devices, job, layout.microbatches)
    phase = max(peaks, key=lambda name: peaks[name].total())
    host = measured.parameters + measured.gradients + measured.state + average if layout.offload else 0
    highest: Counter[str] = Counter()
    for peak in peaks.values():
        highest |= peak
    return Estimate(layout, +peaks[phase], highest, phase, +sent, host)


def _sent(measured: Measured, job: Job) -> Counter[tuple[str, str]]:
    """Sum what was sent in the batches of a step, of which two at most were looked at."""
    sent: Counter[tuple[str, str]] = Counter()
    for (name, phase), size in measured.sent.items():
        times = 1 if phase == UPDATE else job.accumulated / min(job.accumulated, 2)
        sent[name, WHAT.get((name, phase), f"in the {phase}")] += round(size * times)
    return sent


def _pipeline(
    peaks: dict[str, Counter[str]], measured: Measured, devices: Devices, job: Job, microbatches: int
) -> tuple[dict[str, Counter[str]], Counter[tuple[str, str]]]:
    """Return memory and traffic of the stage that needs most."""
    blocks, stages = measured.blocks, devices.count
    if blocks and measured.no_stages:
        raise UserError(measured.no_stages)
    if len(blocks) < stages or stages == 1:
        few = f"{stages} stages need at least {stages} blocks, and there are {len(blocks)}"
        raise UserError(few if stages > 1 else "one stage")
    groups = [[blocks[index] for index in group] for group in array_split(range(len(blocks)), stages)]
    staged = max((_stage(peaks, measured, group, microbatches) for group in groups), key=_highest)
    inside = sum(block.parameters for block in blocks)
    outer = round(measured.gradients * (1 - inside / measured.parameters))
    between = max(block.output for block in blocks) * job.accumulated
    return staged, Counter({
        ("send", "activations"): between,
        ("send", "gradients of activations"): between,
        ("broadcast", "outputs"): measured.outputs * job.accumulated,
        ("all-reduce", "gradients outside of blocks"): _ring(outer, stages) * job.accumulated,
    })  # fmt: skip


def _stage(
    peaks: dict[str, Counter[str]], measured: Measured, group: list[Block], microbatches: int
) -> dict[str, Counter[str]]:
    """Return the memory of the stage that has a group of the blocks, and all that is outside of the blocks."""
    elsewhere = [block for block in measured.blocks if block not in group]
    weights = 1 - sum(block.parameters for block in elsewhere) / measured.parameters  # of them, what it has
    made = sum(block.activations for block in elsewhere)
    staged = {}
    for phase, peak in peaks.items():
        as_weights = (*HOST, WEIGHTS, AVERAGE, *([TEMPORARY] if phase == UPDATE else []))
        parts: dict[str, float] = dict.fromkeys(as_weights, weights)
        staged[phase] = Counter({kind: round(size * parts.get(kind, 1.0)) for kind, size in peak.items()})
        staged[phase][ACTIVATIONS] = max(0, peak[ACTIVATIONS] - made)
    # When the first micro-batch has gone back, all gradients are there, and those of the next ones are added to them.
    later = staged[BACKWARD].copy()
    activations = max(peak[ACTIVATIONS] for peak in staged.values())
    later[ACTIVATIONS] = round(activations * (1 - 1 / microbatches))
    later[GRADIENTS] = round(measured.gradients * weights)
    later[TEMPORARY] = later[TEMPORARY] // microbatches + (measured.largest if microbatches > 1 else 0)
    staged[BACKWARD] = max(staged[BACKWARD], later, key=Counter.total)
    return staged


def _highest(peaks: dict[str, Counter[str]]) -> int:
    return max(peak.total() for peak in peaks.values())


def _ring(size: int, ranks: int) -> int:
    """Return what each of some processes sends to sum what all have."""
    return round(2 * size * (ranks - 1) / ranks)
