"""What takes the memory of a training step."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.profilers import PyTorchProfiler
from lightning.pytorch.utilities import rank_zero_info

from litlab.callbacks.profile import StepProfiler, torch_profiler
from litlab.callbacks.reporting import run_folder
from litlab.errors import UserError
from litlab.types import NonNegativeInt, PositiveInt

MIB = 2**20
AUTOGRAD = "autograd::engine::evaluate_function: "  # before the name of a step of backward


class MemorySnapshot(Callback):
    """Record every allocation of a few training steps.

    On CUDA the run folder gets ``memory.pickle``, for https://pytorch.org/memory_viz: each allocation with its size,
    its lifetime and the lines of Python that made it
    (https://docs.pytorch.org/docs/stable/torch_cuda_memory.html). When memory runs out, in these steps or later, it
    gets ``memory-oom.pickle``: what was allocated then, and of the recorded steps how it came to that.

    On the CPU, where there is no such snapshot, it gets ``memory.txt``, a table of the operations that allocate most,
    and ``memory.trace.json``, a trace with the allocated memory as a curve, for https://ui.perfetto.dev. Both count
    from the first recorded step on: weights were there before.

    All other steps cost what they cost without it. Ranks above 0 add their number: ``memory-1.pickle``.

    Args:
        skip: Training batches before the first that is recorded. 0 shows how the optimizer's state comes into being,
            and what led there if memory runs out at once.
        steps: Training batches that are recorded.
        rows: Operations in the table.

    Raises:
        UserError: For a run without a folder, a device other than CUDA and CPU, and on the CPU together with another
            profiler that uses torch's.
    """

    def __init__(self, skip: NonNegativeInt = 0, steps: PositiveInt = 3, rows: PositiveInt = 15) -> None:
        self.skip = skip
        self.steps = steps
        self.rows = rows
        self._folder: Path | None = None
        self._cuda = False
        self._done = 0  # batches
        self._recorded = 0
        self._torch: torch.profiler.profile | None = None  # on the CPU, while steps are recorded

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse what can't work."""
        if stage != "fit":
            return
        self._folder = run_folder(trainer)
        if self._folder is None:
            raise UserError(
                "trainer.callbacks: MemorySnapshot writes into the run folder, which there is none of with "
                "trainer.logger: false or trainer.fast_dev_run; leave one of them out"
            )
        device = trainer.strategy.root_device.type
        self._cuda = device == "cuda"
        if self._cuda:
            return
        if device != "cpu":
            raise UserError(
                f"trainer.callbacks: MemorySnapshot knows the memory of CUDA and of the CPU, not of {device}; "
                "leave it out, or set trainer.accelerator: cpu"
            )
        profiler = trainer.profiler  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(profiler, StepProfiler | PyTorchProfiler):
            raise UserError(
                "trainer.callbacks: MemorySnapshot uses torch's profiler on the CPU, as trainer.profiler: "
                f"{type(profiler).__name__} does, and there can be only one; leave one of them out"
            )
        rank_zero_info(
            "trainer.callbacks: MemorySnapshot can't take a snapshot with trainer.accelerator: cpu, only on CUDA; "
            "memory.txt will have the operations that allocate most"
        )

    def on_train_batch_start(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        """Begin to record."""
        if self._done != self.skip:
            return
        if self._cuda:
            torch.cuda.memory._record_memory_history()
        else:
            self._torch = torch_profiler(trainer.strategy.root_device, memory=True)
            self._torch.start()

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        """Write what was recorded after the last of the steps."""
        self._done += 1
        if self._done == self.skip + self.steps:
            self._finish(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what there is of a training that ended earlier."""
        if self.skip < self._done < self.skip + self.steps:
            self._finish(trainer)
        elif self._done <= self.skip:
            rank_zero_info(f"MemorySnapshot: the {self._done} batches of this run are skipped, as skip is {self.skip}")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take a snapshot where memory ran out, and stop recording."""
        if self._cuda and isinstance(exception, torch.OutOfMemoryError):  # its traceback keeps the tensors
            path = self._path(trainer, "-oom", ".pickle")
            torch.cuda.memory._dump_snapshot(str(path))
            rank_zero_info(f"MemorySnapshot: what was in memory when it ran out: {path}")
        self._stop()

    def _finish(self, trainer: Trainer) -> None:
        recorded = self._done - self.skip
        if self._cuda:
            path = self._path(trainer, "", ".pickle")
            torch.cuda.memory._dump_snapshot(str(path))
            self._stop()
            rank_zero_info(f"MemorySnapshot: {recorded} steps for https://pytorch.org/memory_viz: {path}")
            return
        profile, path = self._stop(), self._path(trainer, "", ".txt")
        assert profile is not None
        trace = path.with_suffix(".trace.json")
        profile.export_chrome_trace(str(trace))
        peak = _draw_curve(trace)
        path.write_text(_table(profile.events(), recorded, peak, self.rows), encoding="utf-8")
        rank_zero_info(f"MemorySnapshot: {recorded} steps took up to {peak / MIB:.1f} MiB beside weights: {path}")

    def _stop(self) -> torch.profiler.profile | None:
        if self._cuda:
            torch.cuda.memory._record_memory_history(enabled=None)
        elif self._torch is not None:
            self._torch.stop()
        stopped, self._torch = self._torch, None
        return stopped

    def _path(self, trainer: Trainer, what: str, suffix: str) -> Path:
        assert self._folder is not None
        rank = f"-{trainer.global_rank}" if trainer.global_rank else ""
        return self._folder / f"memory{what}{rank}{suffix}"


def _draw_curve(trace: Path) -> int:
    """Turn a trace's notes of allocations into a curve that Perfetto draws; return the highest point, in bytes."""
    content = json.loads(trace.read_text(encoding="utf-8"))
    peak = 0
    for event in content["traceEvents"]:
        if event["name"] == "[memory]":
            allocated = event["args"]["Total Allocated"]
            event.update(ph="C", name="allocated MiB", args={"MiB": allocated / MIB})
            peak = max(peak, allocated)
    trace.write_text(json.dumps(content), encoding="utf-8")
    return peak


def _table(events: Any, steps: int, peak: int, rows: int) -> str:
    """Return the table of the operations that allocate most.

    Args:
        events: All events of torch's profiler. An operation gets what those that it calls allocate.
        steps: Training steps that were recorded.
        peak: Most bytes at a time.
        rows: Operations to show.
    """
    allocated: Counter[str] = Counter()
    for event in events:
        if event.self_cpu_memory_usage > 0:
            outermost = event
            while outermost.cpu_parent is not None and not outermost.cpu_parent.is_user_annotation:
                outermost = outermost.cpu_parent
            allocated[outermost.name] += event.self_cpu_memory_usage
    whole = allocated.total() or 1
    lines = [f"What {steps} training steps allocated, {peak / MIB:.1f} MiB of it at a time at most", ""]
    lines.append(f"{'operation':<60}{'MiB/step':>10}{'share':>8}")
    lines += [
        f"{name.removeprefix(AUTOGRAD)[:59]:<60}{size / MIB / steps:>10.2f}{size / whole:>8.1%}"
        for name, size in allocated.most_common(rows)
    ]
    return "\n".join([*lines, ""])
