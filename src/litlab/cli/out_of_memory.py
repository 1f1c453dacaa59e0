"""Advice for a run that is out of memory."""

from typing import Any

import torch
from lightning.pytorch import Trainer

from litlab.util.device import has_fast_bfloat16, has_tensor_cores, is_out_of_memory
from litlab.util.host_memory import GIB, peak_host_gib

SIZES = (
    ("data", "max_tokens"),
    ("data", "image_size"),
    ("data", "context_length"),
    ("model", "width"),
    ("model", "hidden_size"),
    ("model", "embed_dim"),
)


def out_of_memory_advice(error: BaseException, trainer: Trainer | None) -> str | None:
    """Return one line of advice on an exception that says that the memory is used up.

    Args:
        error: What ended the run.
        trainer: Its Trainer, if there is one.

    Returns:
        Peak memory and the three flags that are most likely to help; None for any other exception.
    """
    if not is_out_of_memory(error):
        return None
    batch = None if trainer is None else _batch(trainer)
    flags = [] if trainer is None else [batch, _precision(trainer), _size(trainer)]
    # Within an epoch the other batches depend on it; from its end on, the schedule is fitted to the new length.
    resumed = " The first works with --resume too, from the end of an epoch." if batch else ""
    advice = ", ".join(flag for flag in flags if flag is not None) or "--data.batch_size smaller"
    return f"out of memory ({_peak(trainer)}): try {advice}.{resumed}"


def _batch(trainer: Trainer) -> str | None:
    """Halve the batches, two to a step: for all but batch normalisation the same training."""
    name = next((n for n in ("tokens_per_batch", "batch_size") if _setting(trainer, "data", n)), None)
    if name is None:
        return None
    size = max(1, _setting(trainer, "data", name) // 2)
    return f"--data.{name} {size} --trainer.accumulate_grad_batches {2 * trainer.accumulate_grad_batches}"


def _precision(trainer: Trainer) -> str | None:
    if not str(trainer.precision).startswith(("32", "64")):
        return None
    device = trainer.strategy.root_device
    if has_fast_bfloat16(device):
        return "--trainer.precision bf16-mixed"
    return "--trainer.precision 16-mixed" if has_tensor_cores(device) else None  # slow where it is emulated


def _size(trainer: Trainer) -> str | None:
    for section, name in SIZES:
        value = _setting(trainer, section, name)
        if isinstance(value, int) and value > 1:
            return f"--{section}.{name} {value // 2}"
        if isinstance(value, (list, tuple)):
            return f"--{section}.{name} '{[side // 2 for side in value]}'"
    return None


def _setting(trainer: Trainer, section: str, name: str) -> Any:
    owner = getattr(trainer, "datamodule", None) if section == "data" else trainer.lightning_module
    return getattr(owner, "hparams", {}).get(name)


def _peak(trainer: Trainer | None) -> str:
    device = torch.device("cpu") if trainer is None else trainer.strategy.root_device
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory / GIB
        return f"peak {torch.cuda.max_memory_allocated(device) / GIB:.2f} of {total:.2f} GiB on {device}"
    if device.type == "mps":
        return f"{torch.mps.driver_allocated_memory() / GIB:.2f} GiB held on {device}"
    return f"peak {peak_host_gib():.2f} GiB of the host's memory"
