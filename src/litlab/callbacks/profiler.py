"""Where the time of a training step goes.

Lightning's PyTorchProfiler has no shares of a step, records validation too and ends each step in
its midst.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.utilities import rank_zero_info
from torch.profiler import record_function

from litlab.types import NonNegativeInt, PositiveInt
from litlab.util.device import synchronize
from litlab.util.files import check_replaceable, stage_output, write_output

LOADER, COPY, TRANSFORM = "waiting for data", "copying to the device", "transform"
FORWARD, BACKWARD, OPTIMIZER, OTHER = "forward", "backward", "optimizer", "callbacks and the rest"
PARTS = (LOADER, COPY, TRANSFORM, FORWARD, BACKWARD, OPTIMIZER, OTHER)

# By the method that an action of Lightning (2.6.6) names last, as in
# "[Strategy]DDPStrategy.backward".
FETCH = "train_dataloader_next"  # begins a step
METHODS = {
    FETCH: LOADER,
    "batch_to_device": COPY,
    "on_before_batch_transfer": TRANSFORM,
    "on_after_batch_transfer": TRANSFORM,
    "training_step": FORWARD,
    "backward": BACKWARD,
    "optimizer_step": OPTIMIZER,
    "lr_scheduler_step": OPTIMIZER,
}
EPOCH = "run_training_epoch"  # the action around all others of an epoch


class StepProfiler(Profiler):
    """Show where the time of a few training steps goes, for ``trainer.profiler``.

    After `skip` batches, it measures `steps` batches with a clock, for the shares of the parts of a
    step (waiting for data, forward, ...). It reads the clock whenever an action of Lightning begins
    or ends. On an accelerator, whose kernels run behind Python, it waits for the device there, so
    that kernels count for the part that started them. Then it records as many batches with torch's
    profiler, which slows them down: the costliest operations, the memory that they allocate, and a
    trace.

    A step lasts from the fetch of its batch to the last of its hooks. What happens between two
    steps (validation, writing logs) does not count; the end of an epoch ends the recording. With
    manual optimization, backward and optimizer are part of forward.

    The report is printed at the end. The run folder gets it as ``fit-profile.txt``, and the trace
    as ``fit-profile.pt.trace.json``, for https://ui.perfetto.dev or TensorBoard's plugin
    torch-tb-profiler; where there are several ranks each has its own (``fit-profile-1.txt``).
    Processes of the data loader are in none.

    Args:
        skip: Training batches before the first measured one; the first ones of a process are
            slower.
        steps: Training batches that are measured, and recorded after that.
        repeat: How often to measure and record. Each recording has a trace; the table of operations
            is from the last one.
        record_shapes: Whether operations are listed by the shapes of their inputs.
        with_stack: Whether the trace has the Python functions that called the operations.
    """

    def __init__(
        self,
        skip: NonNegativeInt = 5,
        steps: PositiveInt = 5,
        repeat: PositiveInt = 1,
        record_shapes: bool = False,
        with_stack: bool = False,
    ) -> None:
        super().__init__()
        self.skip = skip
        self.steps = steps
        self.repeat = repeat
        self.record_shapes = record_shapes
        self.with_stack = with_stack
        self._lightning_module: Any = None  # set by the Trainer
        self._stage_name = self._stem = ""  # of the fit or evaluation, and of its files
        self._done = 0  # steps, since a recording ended
        # In progress, from the outermost on: part, name in the trace
        self._actions: list[Any] = [(OTHER, None)]
        self._is_timed = False
        self._timed = 0  # steps
        self._seconds = dict.fromkeys([*PARTS, ""], 0.0)
        self._part = ""  # that the time belongs to; empty: none
        self._since = 0.0
        self._recorders: list[torch.profiler.profile] = []
        self._recording = ExitStack()  # of the last one, while it records

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Refuse, before the training, to replace what is not a report of this project."""
        super().setup(stage, local_rank, log_dir)
        self._stage_name = stage
        self._stem = "-".join(
            [stage, "profile", *([] if local_rank is None else [str(local_rank)])]
        )
        if self.dirpath and stage == "fit":
            check_replaceable(self._name_file(".txt"))
            check_replaceable(self._name_file(".pt.trace.json"))

    def start(self, action_name: str) -> None:
        """Begin an action, which may be the first of a step."""
        method = action_name.rpartition(".")[2]
        if method == FETCH:
            self._begin_step()
        part = METHODS.get(method, self._actions[-1][0])
        self._actions.append((part, record_function(action_name).__enter__()))
        self._switch(self._actions[-1][0])

    def stop(self, action_name: str) -> None:
        """End an action, which may be the last of a step."""
        self._actions.pop()[1].__exit__(None, None, None)
        self._switch(self._actions[-1][0])
        if action_name.startswith("[LightningModule]") and action_name.endswith(
            ".on_train_batch_end"
        ):
            self._is_timed = False
            self._switch("")
            self._done += 1
        # An epoch may be ended by an error
        if action_name == EPOCH or self._done == self.skip + 2 * self.steps:
            self._recording.close()
            if len(self._recorders) < self.repeat and self._done > self.skip + self.steps:
                self._done = 0

    def describe(self) -> None:
        """Print the report of a fit on rank zero, and write it."""
        from pandas import DataFrame

        if self._stage_name != "fit":
            return
        if not self._recorders:
            rank_zero_info(
                "StepProfiler: no operations were recorded; raise trainer.max_steps or lower skip"
            )
            return
        shares = DataFrame(
            {"ms": {part: self._seconds[part] * 1000 / self._timed for part in PARTS}}
        )
        shares["share"] = shares["ms"] / shares["ms"].sum()
        device = "cpu" if self._lightning_module.device.type == "cpu" else "device"
        averages = self._recorders[-1].key_averages(self.record_shapes)
        operations = averages.table(f"self_{device}_time_total", row_limit=15)
        text = f"Where the time of a training step goes\n\n{shares}\n\n{operations}"
        if self.dirpath:
            write_output(self._name_file(".txt"), text)
            for number, recorder in enumerate(self._recorders):
                suffix = f".{number}" if number else ""
                with stage_output(self._name_file(f"{suffix}.pt.trace.json")) as file:
                    recorder.export_chrome_trace(str(file))
        if self.local_rank == 0:
            print(text)

    def _name_file(self, suffix: str) -> Path:
        return Path(self.dirpath or "", self._stem + suffix)

    def _begin_step(self) -> None:
        if self._done == self.skip + self.steps and len(self._recorders) < self.repeat:
            recorder = torch.profiler.profile(
                profile_memory=True, record_shapes=self.record_shapes, with_stack=self.with_stack
            )
            self._recorders.append(self._recording.enter_context(recorder))
        self._is_timed = self.skip <= self._done < self.skip + self.steps
        self._timed += self._is_timed
        self._switch(OTHER)

    def _switch(self, part: str) -> None:
        """Count the time until now to the part that ends, and from now on to another."""
        part = part if self._is_timed else ""
        if part == self._part:
            return
        synchronize(self._lightning_module.device)
        now = time.perf_counter()
        self._seconds[self._part] += now - self._since
        self._part, self._since = part, now
