"""Where the time of a training step goes."""

import json
import os
from pathlib import Path

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.profilers import Profiler
from torch.profiler import ProfilerActivity, record_function

from litlab.callbacks.profile_report import Profile, operations, report, results
from litlab.callbacks.step_clock import HOOKS, OTHER, PARTS, StepClock, method_of, part_of
from litlab.types import NonNegativeInt, PositiveInt
from litlab.util.device import synchronize

EPOCH = "run_training_epoch"  # the action around all others of an epoch
WAYS = 3  # to measure steps, one after the other:
PLAIN, TIMED, TRACED = range(WAYS)


class StepProfiler(Profiler):
    """Show where the time of a few training steps goes, for ``trainer.profiler``.

    After `skip` steps, three times `steps` of them are measured:

    1. as they are, for the time that a step takes;
    2. with a clock that is read wherever an action of Lightning begins or ends, for the shares of the parts (waiting
       for data, forward, ...). On an accelerator, whose kernels run behind Python, it waits for the device there, so
       that their time belongs to the part that started them;
    3. with torch's profiler, for the costliest operations and the trace. It makes steps slower, and the report says by
       how much.

    A step lasts from the fetch of its batch to the next. Validation and the ends of epochs between two steps belong to
    none, unlike with Lightning's ``PyTorchProfiler``, whose table is of whatever it recorded last. All other steps cost
    what they cost without a profiler.

    The report is printed at the end. The run folder gets it as ``fit-profile.txt``, its numbers as
    ``fit-profile.json``, and the trace as ``fit-profile.trace.json``, for https://ui.perfetto.dev; where there are
    several ranks each has its own (``fit-profile-1.txt``). Recorded steps that an epoch's end keeps apart are in
    several traces (``.trace-2.json``). Processes of the data loader are in none.

    Args:
        skip: Training steps before the first that is measured; the first ones of a process are slower than the rest.
        steps: Training steps that are measured in each of the three ways.
        rows: Operations in the table.
    """

    def __init__(self, skip: NonNegativeInt = 5, steps: PositiveInt = 5, rows: PositiveInt = 15) -> None:
        super().__init__(filename="profile")
        self.skip = skip
        self.steps = steps
        self.rows = rows
        self._clocks = [StepClock(lambda: synchronize(self._module.device)) for _ in range(WAYS)]
        self._torch: torch.profiler.profile | None = None
        self._traces = 0  # files written
        self._active: int | None = None  # PLAIN, TIMED or TRACED, while steps are measured so
        self._batches = 1  # per step: more than one where gradients are accumulated
        self._done = 0  # batches
        self._ended = False  # whether a batch's last action is over
        self._open: list[tuple[str, record_function | None]] = []  # part and, in the trace, name of each action

    def start(self, action_name: str) -> None:
        """Begin an action: at the outermost level, a step may end or begin with it."""
        if action_name == EPOCH or self._done >= self._needed:
            return
        fetches = method_of(action_name) == "train_dataloader_next"
        if not self._open and (self._ended or fetches):
            self._border(fetches)
            if self._done >= self._needed:
                return
        part = part_of(action_name) or self._part
        name = record_function(action_name) if self._active == TRACED else None
        self._open.append((part, name))
        if self._active == TIMED:
            self._clocks[TIMED].switch(part)
        if name is not None:
            name.__enter__()

    def stop(self, action_name: str) -> None:
        """End an action."""
        if action_name == EPOCH:  # by itself or by an error
            self._border(fetches=False)
            return
        if not self._open:
            return
        name = self._open.pop()[1]
        if name is not None:
            name.__exit__(None, None, None)
        if action_name.startswith("[LightningModule]") and method_of(action_name) == "on_train_batch_end":
            self._ended = True
        if self._active == TIMED:
            self._clocks[TIMED].switch(self._part)

    def summary(self) -> str:
        """Return the report; empty for anything but a fit."""
        return report(self._profile(), self.rows) if self._stage == "fit" else ""

    def describe(self) -> None:
        """Print the report of a fit on rank zero, and write it."""
        if self._stage != "fit":
            return
        if self.dirpath:
            super().describe()
            path = Path(self.dirpath) / self._prepare_filename(extension=".json")
            path.write_text(json.dumps(results(self._profile()), indent=2) + "\n", encoding="utf-8")
        if self.local_rank == 0:
            print(self.summary(), end="")

    @property
    def _needed(self) -> int:
        """Batches until all is measured."""
        return (self.skip + WAYS * self.steps) * self._batches

    @property
    def _part(self) -> str:
        """What the time is for now; after a step's last action Lightning writes the logs, which is no action."""
        return self._open[-1][0] if self._open else HOOKS if self._ended else OTHER

    def _border(self, fetches: bool) -> None:
        """End a step if one has, and begin the next if its batch is fetched now."""
        if not self._done and fetches:
            self._batches = self._module.trainer.accumulate_grad_batches
        self._done += self._ended
        self._ended = False
        measured = self._done // self._batches - self.skip
        way = measured // self.steps if fetches and 0 <= measured < WAYS * self.steps else None
        if way == self._active:
            return
        if self._active is not None:
            self._clocks[self._active].switch(None)
        if self._active == TRACED:
            self._stop_recording()
        self._active = way
        if way == TRACED:
            self._start_recording()
        if way is not None:
            self._clocks[way].switch(OTHER)

    def _start_recording(self) -> None:
        if self._torch is None:
            self._torch = torch_profiler(self._module.device)
        self._torch.start()

    def _stop_recording(self) -> None:
        assert self._torch is not None
        self._torch.stop()
        self._traces += 1
        if self.dirpath:
            extension = ".trace.json" if self._traces == 1 else f".trace-{self._traces}.json"
            self._torch.export_chrome_trace(str(Path(self.dirpath) / self._prepare_filename(extension=extension)))

    def _profile(self) -> Profile:
        """Return what was measured."""
        steps = self._done // self._batches - self.skip
        counts = [min(max(steps - way * self.steps, 0), self.steps) for way in range(WAYS)]
        milliseconds = [clock.total / max(count, 1) * 1000 for clock, count in zip(self._clocks, counts, strict=True)]
        timed = self._clocks[TIMED].seconds
        parts = {part: timed[part] / max(counts[TIMED], 1) * 1000 for part in PARTS if part in timed}
        device = self._module.device.type
        profile = Profile(device, self._batches, self.skip, counts, milliseconds, parts)
        if counts[TRACED] and self._torch is not None:
            profile.operations = operations(self._torch.key_averages(), counts[TRACED], device)
        return profile

    @property
    def _module(self) -> LightningModule:
        return self._lightning_module  # pyright: ignore[reportAttributeAccessIssue]  # which the Trainer has set


def torch_profiler(device: torch.device, memory: bool = False) -> torch.profiler.profile:
    """Make torch's profiler for a device.

    Args:
        device: Its kernels are recorded if it is CUDA, and the host's operations always.
        memory: Whether to record allocations on the host.
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    else:  # where torch's tracer prints an error, as it finds no GPU
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    return torch.profiler.profile(activities=activities, profile_memory=memory, acc_events=True)
