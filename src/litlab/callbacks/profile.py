"""Where the time of a training step goes."""

from pathlib import Path

import torch
from lightning.pytorch.profilers import Profiler
from torch.profiler import ProfilerActivity, record_function

from litlab.types import PositiveInt, check_bounds

STEP = "run_training_batch"  # what Lightning calls a training step: forward, backward, optimizer


class StepProfiler(Profiler):
    """Record a few training steps with torch's profiler, for ``trainer.profiler``.

    The run folder gets a table of what took longest, ``fit-profile.txt``, and a trace for https://ui.perfetto.dev,
    ``fit-profile.trace.json``, of each rank where there are several. Both hold those steps only, with all that happens
    between them (the next batch, callbacks); no validation, set-up or later steps, as with Lightning's
    ``PyTorchProfiler``, whose table is of whatever was recorded last.

    Args:
        skip: Training steps before the first that is recorded; the first ones of a process are slower than the rest.
        steps: Training steps that are recorded.
        rows: Rows of the table.

    Raises:
        UserError: For a number that is too small.
    """

    def __init__(self, skip: PositiveInt = 5, steps: PositiveInt = 3, rows: PositiveInt = 20) -> None:
        super().__init__(filename="profile")
        check_bounds(StepProfiler, locals(), "trainer.profiler")
        self.skip = skip
        self.steps = steps
        self.rows = rows
        self._profile: torch.profiler.profile | None = None  # while steps are recorded
        self._open: dict[str, record_function] = {}  # Lightning's actions that have started
        self._done = 0  # training steps
        self._table = ""

    def start(self, action_name: str) -> None:
        """Name what follows in the trace, while steps are recorded."""
        if self._profile is not None and action_name not in self._open:
            self._open[action_name] = record_function(action_name)
            self._open[action_name].__enter__()

    def stop(self, action_name: str) -> None:
        """End what was named; count training steps, and begin or end recording after one."""
        if action_name in self._open:
            self._open.pop(action_name).__exit__(None, None, None)
        if action_name != STEP:
            return
        self._done += 1
        if self._done == self.skip:
            self._begin()
        elif self._profile is not None and self._done == self.skip + self.steps:
            self._end()

    def summary(self) -> str:
        """Return the table; Lightning writes it to the run folder at the end."""
        if self._table or self._stage != "fit":
            return self._table
        return f"No training step was recorded: there were {self._done}, and the first {self.skip} are skipped.\n"

    def teardown(self, stage: str | None) -> None:
        """Stop recording where the training ended earlier, by itself or by an error."""
        if getattr(self, "_profile", None) is not None:  # called by __del__ too, even if __init__ raised
            self._end()
        super().teardown(stage)

    def _begin(self) -> None:
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        self._profile = torch.profiler.profile(activities=activities, acc_events=True)
        self._profile.start()

    def _end(self) -> None:
        assert self._profile is not None
        for action in reversed(list(self._open)):
            self._open.pop(action).__exit__(None, None, None)
        self._profile.stop()
        profile, self._profile = self._profile, None
        sort_by = "device_time_total" if torch.cuda.is_available() else "cpu_time_total"
        steps = min(self._done - self.skip, self.steps)
        table = profile.key_averages().table(sort_by=sort_by, row_limit=self.rows, max_name_column_width=70)
        self._table = f"{steps} training steps, after {self.skip} that were skipped\n{table}\n"
        if self.dirpath:
            profile.export_chrome_trace(str(Path(self.dirpath) / self._prepare_filename(extension=".trace.json")))
