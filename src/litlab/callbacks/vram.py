"""Memory, seconds and samples per second of each training epoch."""

import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.callbacks.batches import tensors
from litlab.parallel.groups import data_ranks
from litlab.util.device import GIB, peak_host_gib, synchronize


class VRAM(Callback):
    """Log once per training epoch how much memory the run took and how fast it went.

    On CUDA: ``vram/allocated_gib`` and ``vram/reserved_gib`` (peaks of the epoch, validation inside it included, in
    GiB, of the rank that needs most) and ``vram/share`` (peak reserved memory as a share of the device's total). On
    Apple's MPS: the same names for the memory held at the end of the epoch, as MPS keeps no peaks. Without an
    accelerator: ``memory/host_gib``, the peak resident memory of the process in GiB. Everywhere:
    ``time/epoch_seconds`` (training only, validation left out) and ``time/samples_per_second`` (over all ranks).

    Per step it adds one integer to another; it waits for the device twice an epoch and reduces over ranks once.
    """

    def __init__(self) -> None:
        self.peak_gib: float | None = None  # highest of all epochs so far: reserved memory, or the host's
        self.epoch_seconds: list[float] = []
        self.samples_per_second: list[float] = []
        self._samples = 0  # of this epoch, on this rank
        self._seconds = 0.0  # of this epoch's training, up to the last pause
        self._resumed_at = 0.0
        self._host_before = (0.0, 0.0)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock: an epoch resumed in its middle has no start of its own."""
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set counters and peaks to zero."""
        device = trainer.strategy.root_device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif device.type != "mps":
            self._host_before = _host_gib()
        self._samples = 0
        self._seconds = 0.0
        self._resumed_at = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch's samples."""
        self._samples += count_samples(batch)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock during the epoch's validation."""
        if _inside_epoch(trainer):
            self._pause(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock again."""
        if _inside_epoch(trainer):
            synchronize(trainer.strategy.root_device)
            self._resumed_at = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reduce the epoch's numbers over ranks and log them."""
        self._pause(trainer)
        device = trainer.strategy.root_device
        memory = self._memory(device)
        mine = torch.tensor([*memory.values(), self._seconds, self._samples], dtype=torch.float32, device=device)
        ranks = trainer.strategy.all_gather(mine).reshape(-1, len(mine)).cpu()  # (ranks, values)
        *peaks, seconds, _ = ranks.amax(dim=0).tolist()
        samples = ranks[:, -1].mean().item() * data_ranks(trainer)["world_size"]  # some ranks may have the same ones
        metrics = dict(zip(memory, peaks, strict=True))
        metrics["time/epoch_seconds"] = seconds
        metrics["time/samples_per_second"] = samples / seconds
        # Every rank has the same values by now; sync_dist only keeps Lightning from warning that they might differ.
        pl_module.log_dict(metrics, sync_dist=trainer.world_size > 1, reduce_fx="max")

        peak = metrics["memory/host_gib"] if "memory/host_gib" in metrics else metrics["vram/reserved_gib"]
        self.peak_gib = max(self.peak_gib or 0.0, peak)
        self.epoch_seconds.append(seconds)
        self.samples_per_second.append(metrics["time/samples_per_second"])

    def _pause(self, trainer: Trainer) -> None:
        # Kernels are queued, not done, when Python gets here: without the wait, training's would count as validation's.
        synchronize(trainer.strategy.root_device)
        self._seconds += time.perf_counter() - self._resumed_at

    def _memory(self, device: torch.device) -> dict[str, float]:
        if device.type == "cuda":
            allocated = torch.cuda.max_memory_allocated(device)
            reserved = torch.cuda.max_memory_reserved(device)
            total = torch.cuda.get_device_properties(device).total_memory
        elif device.type == "mps":
            allocated = torch.mps.current_allocated_memory()
            reserved = torch.mps.driver_allocated_memory()
            total = torch.mps.recommended_max_memory()
        else:
            resident, highest = _host_gib()
            resident_before, highest_before = self._host_before
            # The system keeps one peak for the whole life of the process: it is this epoch's only if it rose in it.
            peak = highest if highest > highest_before else max(resident, resident_before)
            return {"memory/host_gib": peak}
        return {
            "vram/allocated_gib": allocated / GIB,
            "vram/reserved_gib": reserved / GIB,
            "vram/share": reserved / total,
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


def _inside_epoch(trainer: Trainer) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking


def _host_gib() -> tuple[float, float]:
    """Return the resident memory of this process now and at its highest, in GiB."""
    import psutil

    return psutil.Process().memory_info().rss / GIB, peak_host_gib()
