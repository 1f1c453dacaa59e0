"""What a profile of training steps says, as a text and as plain numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from litlab.callbacks.step_clock import BACKWARD, FORWARD

PYTHON = "outside of operations (Python, waiting)"
NAME_WIDTH = 44  # with which a table is as wide as a small terminal


@dataclass
class Operation:
    """What the calls of one operation took, per training step.

    Args:
        name: As torch names it.
        calls: How often it was called.
        self_ms: Milliseconds of the host in it, without the operations that it calls.
        total_ms: The same with them.
        device_ms: Milliseconds of the device in kernels that it started itself.
    """

    name: str
    calls: float
    self_ms: float
    total_ms: float
    device_ms: float


@dataclass
class Profile:
    """What was measured.

    Args:
        device: Type of the device, such as ``cuda``.
        batches: Batches of a step, over which gradients are accumulated.
        skipped: Steps before the first that was measured.
        steps: Steps that were measured: as they are, with the clock and with torch's profiler.
        step_ms: Milliseconds per step of each of these.
        parts: Milliseconds per step of each part, by the clock.
        operations: Those of the recorded steps, the costliest first.
    """

    device: str
    batches: int
    skipped: int
    steps: list[int]
    step_ms: list[float]
    parts: dict[str, float] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)


def operations(events: Sequence[Any], steps: int, device: str) -> list[Operation]:
    """Turn what torch's profiler recorded into operations, the costliest first.

    The time within what Lightning and optimizers have named, and within no operation, is one row.

    Args:
        events: Its ``key_averages()``.
        steps: Training steps that were recorded.
        device: Type of the device: on an accelerator its time decides the order.
    """
    host = [event for event in events if event.device_type.name == "CPU"]  # kernels count where they were started

    def row(name: str, calls: int, self_us: float, total_us: float, device_us: float) -> Operation:
        return Operation(name, calls / steps, *(us / 1000 / steps for us in (self_us, total_us, device_us)))

    rows = [
        row(
            event.key, event.count, event.self_cpu_time_total, event.cpu_time_total, event.self_device_time_total
        )
        for event in host
        if not event.is_user_annotation
    ]  # fmt: skip
    python = sum(event.self_cpu_time_total for event in host if event.is_user_annotation)
    rows.append(row(PYTHON, 0, python, python, 0))
    return sorted(rows, key=lambda op: (op.device_ms if device != "cpu" else 0, op.self_ms), reverse=True)


def results(profile: Profile) -> dict[str, Any]:
    """Return the profile as plain numbers, for JSON; ``shares`` add up to 1."""
    total = sum(profile.parts.values())
    return asdict(profile) | {"shares": {part: ms / total for part, ms in profile.parts.items()}}


def report(profile: Profile, rows: int) -> str:
    """Return the tables.

    Args:
        profile: What was measured.
        rows: Operations to show.
    """
    plain, timed, traced = profile.steps
    if not timed:
        return (
            f"StepProfiler: too few training steps: {profile.skipped} are skipped, and {plain} were left to measure; "
            "raise trainer.max_steps, or lower skip or steps\n"
        )
    of = f" of {profile.batches} batches" if profile.batches > 1 else ""
    lines = [
        f"Where the time of a training step goes ({timed} steps{of}, after {profile.skipped} that were skipped)",
        "",
    ]
    lines += [f"{'part':<24}{'ms':>10}{'share':>10}"]
    total = sum(profile.parts.values())
    lines += [f"{part:<24}{ms:>10.1f}{ms / total:>10.1%}" for part, ms in profile.parts.items()]
    lines += [f"{'a step':<24}{total:>10.1f}{1:>10.1%}", ""]
    if BACKWARD not in profile.parts and FORWARD in profile.parts:
        lines += ["Backward and optimizer are in forward: with manual optimization Lightning does not tell them apart."]
    if profile.device != "cpu":
        lines += [f"Each part ends when the {profile.device} device has done its work."]
    plain_ms, timed_ms, traced_ms = (f"{ms:.1f} ms" for ms in profile.step_ms)
    lines.append(f"A step took {plain_ms} as it is, {timed_ms} with the clock, {traced_ms} with torch's profiler.")
    if not traced:
        return "\n".join([*lines, "There are no operations: the run ended before them; raise trainer.max_steps.", ""])
    return "\n".join([*lines, "", *_operation_table(profile, rows), ""])


def _operation_table(profile: Profile, rows: int) -> list[str]:
    """Return the lines of the table of operations."""
    of_device = profile.device != "cpu"
    whole = sum(op.device_ms if of_device else op.self_ms for op in profile.operations) or 1.0
    device = f"{'device ms':>11}" if of_device else ""
    lines = [f"{'operation':<{NAME_WIDTH}}{'calls':>7}{'self ms':>10}{'total ms':>11}{device}{'share':>8}"]
    for op in profile.operations[:rows]:
        share = (op.device_ms if of_device else op.self_ms) / whole
        calls = f"{op.calls:.4g}" if op.calls else ""
        device = f"{op.device_ms:>11.2f}" if of_device else ""
        lines.append(
            f"{_shortened(op.name):<{NAME_WIDTH}}{calls:>7}{op.self_ms:>10.2f}{op.total_ms:>11.2f}{device}{share:>8.1%}"
        )
    return lines


def _shortened(name: str) -> str:
    """Return a name without its middle, as the ends tell long ones apart."""
    half = NAME_WIDTH // 2 - 2
    return name if len(name) < NAME_WIDTH else f"{name[:half]}...{name[-half:]}"
