"""Where the time of a training step goes.

Lightning's PyTorchProfiler has no shares of a step, records validation too and ends each step in its midst.
"""

import json
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler
from torch.profiler import record_function

from litlab.types import NonNegativeInt, PositiveInt
from litlab.util.device import synchronize

LOADER, COPY, TRANSFORM = "waiting for data", "copying to the device", "transform"
FORWARD, BACKWARD, CLIPPING, OPTIMIZER = "forward", "backward", "gradient clipping", "optimizer"
HOOKS, OTHER = "callbacks and logging", "other"
PARTS = (LOADER, COPY, TRANSFORM, FORWARD, BACKWARD, CLIPPING, OPTIMIZER, HOOKS, OTHER)

# By the method that an action of Lightning (2.6.6) names last, as in "[Strategy]DDPStrategy.backward".
METHODS = {
    "train_dataloader_next": LOADER,
    "batch_to_device": COPY,
    "transfer_batch_to_device": COPY,
    "on_before_batch_transfer": TRANSFORM,
    "on_after_batch_transfer": TRANSFORM,
    "training_step": FORWARD,
    "backward": BACKWARD,
    "configure_gradient_clipping": CLIPPING,
    "optimizer_step": OPTIMIZER,
    "optimizer_zero_grad": OPTIMIZER,
    "lr_scheduler_step": OPTIMIZER,
}
EPOCH = "run_training_epoch"  # the action around all others of an epoch


class StepProfiler(Profiler):
    """Show where the time of a few training steps goes, for ``trainer.profiler``.

    After `skip` batches, `steps` of them are measured with a clock, which is read wherever an action of Lightning
    begins or ends, for the shares of the parts of a step (waiting for data, forward, ...). On an accelerator, whose
    kernels run behind Python, it waits for the device there, so that their time belongs to the part that started them.
    As many more are recorded with torch's profiler, which makes them slower, for the costliest operations and a trace.
    All other steps cost what they cost without a profiler.

    A step lasts from the fetch of its batch to the next. What is between two steps (validation, the end of an epoch)
    belongs to none, and ends the recording. With manual optimization, backward and optimizer are part of forward.

    The report is printed at the end. The run folder gets it as ``fit-profile.txt``, the parts as ``fit-profile.json``
    and the trace as ``fit-profile.trace.json``, for https://ui.perfetto.dev; where there are several ranks each has its
    own (``fit-profile-1.txt``). Processes of the data loader are in none.

    Args:
        skip: Training batches before the first that is measured; the first ones of a process are slower than the rest.
        steps: Training batches that are measured, and recorded after that.
        rows: Operations in the table.
    """

    def __init__(self, skip: NonNegativeInt = 5, steps: PositiveInt = 5, rows: PositiveInt = 15) -> None:
        super().__init__(filename="profile")
        self.skip = skip
        self.steps = steps
        self.rows = rows
        self._lightning_module: Any = None  # set by the Trainer
        self._done = 0  # steps
        self._is_over = False  # whether the last action of a step is
        self._open: list[tuple[str, AbstractContextManager[Any]]] = []  # part of each action, and its name in the trace

        self._is_timed = False
        self._seconds: dict[str | None, float] = dict.fromkeys([*PARTS, None], 0.0)  # None: what is not timed
        self._part: str | None = None
        self._since = 0.0

        self._torch: torch.profiler.profile | None = None
        self._is_recorded = False

    def start(self, action_name: str) -> None:
        """Begin an action: at the outermost level, a step may end or begin with it."""
        if action_name == EPOCH:
            return
        fetches = method_of(action_name) == "train_dataloader_next"
        if not self._open and (fetches or self._is_over):
            self._cross_border(fetches)
        part = part_of(action_name) or self._innermost_part()
        name = record_function(action_name) if self._is_recorded else nullcontext()
        name.__enter__()
        self._open.append((part, name))
        self._switch(part)

    def stop(self, action_name: str) -> None:
        """End an action."""
        if action_name == EPOCH:  # by itself or by an error
            self._cross_border(fetches=False)
            return
        _, name = self._open.pop()
        name.__exit__(None, None, None)
        if action_name.startswith("[LightningModule]") and method_of(action_name) == "on_train_batch_end":
            self._is_over = True
        self._switch(self._innermost_part())

    def summary(self) -> str:
        """Return the report; empty for anything but a fit."""
        if self._stage != "fit":
            return ""
        parts = self._milliseconds()
        if not parts:
            return (
                f"StepProfiler: no step was measured, as skip is {self.skip}; raise trainer.max_steps or lower skip\n"
            )
        total = sum(parts.values())
        lines = ["Where the time of a training step goes", "", f"{'part':<24}{'ms':>10}{'share':>10}"]
        lines += [f"{part:<24}{ms:>10.1f}{ms / total:>10.1%}" for part, ms in parts.items()]
        lines += [f"{'a step':<24}{total:>10.1f}", ""]
        if self._torch is None:
            return "\n".join([*lines, "The run ended before operations were recorded; raise trainer.max_steps", ""])
        device = "cpu" if self._lightning_module.device.type == "cpu" else "device"
        operations = self._torch.key_averages()
        return "\n".join([*lines, operations.table(sort_by=f"self_{device}_time_total", row_limit=self.rows)])

    def describe(self) -> None:
        """Print the report of a fit on rank zero, and write it."""
        if self._stage != "fit":
            return
        text = self.summary()
        if self.dirpath:
            self._path(".txt").write_text(text, encoding="utf-8")
            self._path(".json").write_text(json.dumps({"parts": self._milliseconds()}, indent=2), encoding="utf-8")
        if self.local_rank == 0:
            print(text, end="")

    def _cross_border(self, fetches: bool) -> None:
        """End a step if there is one, and begin the next if its batch is fetched now."""
        self._done += self._is_over
        self._is_over = False
        self._is_timed = fetches and self.skip <= self._done < self.skip + self.steps
        self._switch(OTHER)

        if self._is_recorded and not (fetches and self._done < self.skip + 2 * self.steps):
            self._stop_recording()
        if fetches and self._done == self.skip + self.steps and self._torch is None:
            self._torch = torch.profiler.profile()
            self._torch.start()
            self._is_recorded = True

    def _switch(self, part: str) -> None:
        """Count the time until now to the part that ends, and from now on to another."""
        current = part if self._is_timed else None
        if current == self._part:
            return
        synchronize(self._lightning_module.device)
        now = time.perf_counter()
        self._seconds[self._part] += now - self._since
        self._part, self._since = current, now

    def _innermost_part(self) -> str:
        if self._open:
            return self._open[-1][0]
        return HOOKS if self._is_over else OTHER  # after its last action Lightning writes the logs, which is no action

    def _stop_recording(self) -> None:
        assert self._torch is not None
        self._torch.stop()
        self._is_recorded = False
        if self.dirpath:
            self._torch.export_chrome_trace(str(self._path(".trace.json")))

    def _milliseconds(self) -> dict[str, float]:
        """Return those of each part of a step."""
        timed = min(max(self._done - self.skip, 0), self.steps)
        return {part: self._seconds[part] / timed * 1000 for part in PARTS if self._seconds[part] and timed}

    def _path(self, extension: str) -> Path:
        assert self.dirpath is not None
        return Path(self.dirpath) / self._prepare_filename(extension=extension)


def method_of(action: str) -> str:
    """Return the method that an action of Lightning's profilers is named for, such as ``training_step``."""
    return action.rpartition(".")[2]


def part_of(action: str) -> str | None:
    """Return the part of a step that an action belongs to; None for one that is part of what surrounds it.

    Args:
        action: Name of an action of Lightning's profilers.
    """
    part = METHODS.get(method_of(action))
    if part is None and (action.startswith("[Callback]") or method_of(action).startswith("on_")):
        return HOOKS
    return part
