"""Memory: what each epoch took; gradients freed early, and the layout of convolutions."""

import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.model_helpers import is_overridden

from litlab.callbacks.reporting import run_folder
from litlab.types import PositiveInt
from litlab.util.device import GIB, peak_host_gib, synchronize
from litlab.util.files import check_replaceable, stage_output, write_output
from litlab.util.ranks import data_ranks
from litlab.util.steps import count_samples, free_gradients


class VRAM(Callback):
    """Log once per training epoch how much memory the run took and how fast it went.

    Lightning's DeviceStatsMonitor logs every batch, and has no peak of an epoch.

    On CUDA: ``vram/allocated_gib`` and ``vram/reserved_gib`` (peaks of the epoch, validation inside
    it included, in GiB, of the rank that needs most). Elsewhere: ``memory/host_gib``, the most
    memory that the process has had resident
    so far, in GiB. Everywhere: ``time/epoch_seconds`` (up to the last training batch) and
    ``time/samples_per_second`` (over all ranks).

    It waits for the device once an epoch. The attributes are of this rank.
    """

    def __init__(self) -> None:
        # Highest of all epochs so far: reserved memory, or the host's
        self.peak_gib: float | None = None
        self.samples_per_second = 0.0  # of the last epoch

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        device = trainer.strategy.root_device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._samples = 0  # on this rank
        self._start = time.perf_counter()

    on_train_start = on_train_epoch_start  # an epoch resumed in its middle has no start of its own

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._samples += count_samples(batch)
        if trainer.is_last_batch:
            # Kernels are queued, not done, when Python gets here
            synchronize(trainer.strategy.root_device)
        self._seconds = time.perf_counter() - self._start

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the epoch's numbers."""
        if not self._samples:  # resumed behind the last batch
            return
        self.samples_per_second = self._samples * data_ranks(trainer)["world_size"] / self._seconds
        memory = measure_memory(trainer.strategy.root_device)
        pl_module.log_dict(
            memory | {"time/epoch_seconds": self._seconds}, sync_dist=True, reduce_fx="max"
        )
        pl_module.log("time/samples_per_second", self.samples_per_second, sync_dist=True)
        self.peak_gib = max(self.peak_gib or 0.0, *memory.values())


def measure_memory(device: torch.device) -> dict[str, float]:
    """Return the peaks of a device by the names under which they are logged."""
    if device.type != "cuda":
        return {"memory/host_gib": peak_host_gib()}
    return {
        "vram/allocated_gib": torch.cuda.max_memory_allocated(device) / GIB,
        "vram/reserved_gib": torch.cuda.max_memory_reserved(device) / GIB,
    }


class MemorySnapshot(Callback):
    """Record every allocation of the first training batches on a CUDA GPU.

    The run folder gets ``memory-0.pickle`` (of rank 0), for https://pytorch.org/memory_viz: each
    allocation with its size, its lifetime and the lines of Python that made it
    (https://docs.pytorch.org/docs/stable/torch_cuda_memory.html). When memory runs out, in these
    steps or later, it gets ``memory-0-oom.pickle``: what was allocated at that point, and the
    history of the recorded steps. Other steps are not slowed down. On other devices, torch has no
    such snapshot, and nothing is recorded.

    Args:
        steps: Number of training batches to record, from the first one on: they show how the
            optimizer's state is created, and why memory runs out if it does so at once.
    """

    def __init__(self, steps: PositiveInt = 3) -> None:
        self.steps = steps
        self._path = ""  # without suffix; empty: nothing is recorded
        self._done = 0  # batches

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)
        if folder is None or trainer.strategy.root_device.type != "cuda":
            rank_zero_info(
                "MemorySnapshot: it needs a CUDA GPU and a run folder, and records nothing"
            )
            return
        self._path = str(folder / f"memory-{trainer.global_rank}")
        for suffix in (".pickle", "-oom.pickle", ".txt"):
            check_replaceable(Path(self._path + suffix))
        torch.cuda.memory._record_memory_history()

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self._done += 1
        if self._done == self.steps:
            self._write(".pickle")

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Take a snapshot where memory ran out, while the traceback keeps the tensors."""
        if isinstance(exception, torch.OutOfMemoryError):
            self._write("-oom.pickle")
        elif self._path:
            torch.cuda.memory._record_memory_history(enabled=None)

    def _write(self, suffix: str) -> None:
        if self._path:
            with stage_output(Path(self._path + suffix)) as file:
                torch.cuda.memory._dump_snapshot(str(file))
            torch.cuda.memory._record_memory_history(enabled=None)
            write_output(Path(f"{self._path}.txt"), torch.cuda.memory_summary())
            rank_zero_info(
                f"MemorySnapshot: {self._path}{suffix}, for https://pytorch.org/memory_viz"
            )


class FreeGradients(Callback):
    """Free the gradients of a step before the forward pass of the next one, so that no activations
    exist beside them; Lightning (2.6.6) frees them after it.

    Gradients that are being accumulated stay. Until the next batch begins, callbacks can read the
    gradients. It does nothing if a model or callback has its own ``on_before_zero_grad`` or
    ``optimizer_zero_grad``, or if the model steps its optimizers itself.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        owners = [pl_module, *trainer.callbacks]  # pyright: ignore[reportAttributeAccessIssue]
        is_hooked = any(is_overridden("on_before_zero_grad", owner) for owner in owners)
        is_hooked |= is_overridden("optimizer_zero_grad", pl_module)
        self._frees = pl_module.automatic_optimization and not is_hooked

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._frees and batch_idx % trainer.accumulate_grad_batches == 0:  # as Lightning does
            for optimizer in trainer.optimizers:
                free_gradients(optimizer)


class ChannelsLast(Callback):
    """Lay out the filters of two-dimensional convolutions as (filters, height, width, channel) in
    memory.

    Convolutions and what follows them then compute in that layout, whatever the layout of the
    images is. Shapes, checkpoints and, up to rounding, results stay the same. It is faster on GPUs
    with mixed precision and often on CPUs
    (https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html).
    """

    part_of_step = True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Change the layout in place, before the optimizer is made."""
        for tensor in (*pl_module.parameters(), *pl_module.buffers()):
            if tensor.ndim == 4:  # Module.to takes volumes, too, and fails with them
                tensor.data = tensor.detach().to(memory_format=torch.channels_last)
