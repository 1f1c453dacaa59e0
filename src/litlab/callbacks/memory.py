"""Memory: how much each epoch took, and what takes it within a step."""

import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from litlab.callbacks.batches import tensors
from litlab.callbacks.reporting import run_folder
from litlab.errors import UserError
from litlab.parallel.groups import data_ranks
from litlab.types import NonNegativeInt, PositiveInt
from litlab.util.device import GIB, peak_host_gib, synchronize


class VRAM(Callback):
    """Log once per training epoch how much memory the run took and how fast it went.

    Lightning's DeviceStatsMonitor logs every batch, and has no peak of an epoch.

    On CUDA: ``vram/allocated_gib`` and ``vram/reserved_gib`` (peaks of the epoch, validation inside it included, in
    GiB, of the rank that needs most) and ``vram/share`` (peak reserved memory as a share of the device's total).
    Elsewhere: ``memory/host_gib``, the most memory that the process has had resident so far, in GiB. Everywhere:
    ``time/epoch_seconds`` (training only, validation left out) and ``time/samples_per_second`` (over all ranks).

    Per step it adds one integer to another; it waits for the device twice an epoch. The attributes are of this rank.
    """

    def __init__(self) -> None:
        self.peak_gib: float | None = None  # highest of all epochs so far: reserved memory, or the host's
        self.epoch_seconds: list[float] = []
        self.samples_per_second: list[float] = []
        self._samples = 0  # of this epoch, on this rank
        self._seconds = 0.0  # of this epoch's training, up to the last pause
        self._resumed_at = 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        device = trainer.strategy.root_device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._samples = 0
        self._seconds = 0.0
        self._resumed_at = time.perf_counter()

    on_train_start = on_train_epoch_start  # an epoch resumed in its middle has no start of its own

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._samples += count_samples(batch)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._pause(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        synchronize(trainer.strategy.root_device)
        self._resumed_at = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the epoch's numbers."""
        self._pause(trainer)
        memory = _measure_memory(trainer.strategy.root_device)
        rate = self._samples * data_ranks(trainer)["world_size"] / self._seconds
        pl_module.log_dict(memory | {"time/epoch_seconds": self._seconds}, sync_dist=True, reduce_fx="max")
        pl_module.log("time/samples_per_second", rate, sync_dist=True)

        peak = memory["vram/reserved_gib"] if "vram/reserved_gib" in memory else memory["memory/host_gib"]
        self.peak_gib = max(self.peak_gib or 0.0, peak)
        self.epoch_seconds.append(self._seconds)
        self.samples_per_second.append(rate)

    def _pause(self, trainer: Trainer) -> None:
        # Kernels are queued, not done, when Python gets here: without the wait, training's would count as validation's.
        synchronize(trainer.strategy.root_device)
        self._seconds += time.perf_counter() - self._resumed_at


def _measure_memory(device: torch.device) -> dict[str, float]:
    if device.type != "cuda":
        return {"memory/host_gib": peak_host_gib()}
    reserved = torch.cuda.max_memory_reserved(device)
    return {
        "vram/allocated_gib": torch.cuda.max_memory_allocated(device) / GIB,
        "vram/reserved_gib": reserved / GIB,
        "vram/share": reserved / torch.cuda.get_device_properties(device).total_memory,
    }


def count_samples(batch: Any) -> int:
    """Return the number of samples in a batch: the size of the first dimension of its first tensor.

    Args:
        batch: A tensor (batch, ...), or a tuple, list or dict that holds some, as deep as need be.

    Returns:
        The number; 0 if there is no tensor, or the first one has shape ().
    """
    first = next((tensor for _, tensor in tensors(batch)), None)
    return 0 if first is None or first.ndim == 0 else first.shape[0]


class MemorySnapshot(Callback):
    """Record every allocation of a few training batches.

    On CUDA the run folder gets ``memory.pickle``, for https://pytorch.org/memory_viz: each allocation with its size,
    its lifetime and the lines of Python that made it
    (https://docs.pytorch.org/docs/stable/torch_cuda_memory.html). When memory runs out, in these steps or later, it
    gets ``memory-oom.pickle``: what was allocated then, and of the recorded steps how it came to that.

    Elsewhere there is no such snapshot, and it gets ``memory.txt``, torch's table of the operations that allocate most
    on the host. It can't be combined there with another profiler that uses torch's.

    All other steps cost what they cost without it. Ranks above 0 add their number: ``memory-1.pickle``.

    Args:
        skip: Training batches before the first that is recorded. 0 shows how the optimizer's state comes into being,
            and what led there if memory runs out at once.
        steps: Training batches that are recorded.
        rows: Operations in the table.

    Raises:
        UserError: For a run without a folder.
    """

    def __init__(self, skip: NonNegativeInt = 0, steps: PositiveInt = 3, rows: PositiveInt = 15) -> None:
        self.skip = skip
        self.steps = steps
        self.rows = rows
        self._path = Path()  # without suffix
        self._done = 0  # batches
        self._profile: torch.profiler.profile | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)
        if folder is None:
            raise UserError(
                "trainer.callbacks: MemorySnapshot writes into the run folder, which there is none of with "
                "trainer.logger: false or trainer.fast_dev_run; leave one of them out"
            )
        self._path = folder / (f"memory-{trainer.global_rank}" if trainer.global_rank else "memory")

    def on_train_batch_start(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        if self._done != self.skip:
            return
        if _is_cuda(trainer):
            torch.cuda.memory._record_memory_history()
        else:
            self._profile = torch.profiler.profile(profile_memory=True)
            self._profile.start()

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        self._done += 1
        if self._done == self.skip + self.steps:
            self._finish(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what there is of a training that ended earlier."""
        if self.skip < self._done < self.skip + self.steps:
            self._finish(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take a snapshot where memory ran out, and stop recording."""
        if _is_cuda(trainer) and isinstance(exception, torch.OutOfMemoryError):  # its traceback keeps the tensors
            self._write_snapshot("-oom.pickle")
        self._stop(trainer)

    def _finish(self, trainer: Trainer) -> None:
        if _is_cuda(trainer):
            self._write_snapshot(".pickle")
        profile = self._profile
        self._stop(trainer)
        if profile is not None:
            path = self._path.with_suffix(".txt")
            table = profile.key_averages().table(sort_by="cpu_memory_usage", row_limit=self.rows)
            path.write_text(f"{self._done - self.skip} training steps\n{table}", encoding="utf-8")
            rank_zero_info(f"MemorySnapshot: the operations that allocate most: {path}")

    def _write_snapshot(self, suffix: str) -> None:
        path = f"{self._path}{suffix}"
        torch.cuda.memory._dump_snapshot(path)
        rank_zero_info(f"MemorySnapshot: what was in memory, for https://pytorch.org/memory_viz: {path}")

    def _stop(self, trainer: Trainer) -> None:
        if _is_cuda(trainer):
            torch.cuda.memory._record_memory_history(enabled=None)
        elif self._profile is not None:
            self._profile.stop()
            self._profile = None


def _is_cuda(trainer: Trainer) -> bool:
    return trainer.strategy.root_device.type == "cuda"
