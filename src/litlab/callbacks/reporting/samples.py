"""Collect samples of a test: tensors that its steps return, samples spread over it, rows from all ranks."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.errors import UserError
from litlab.parallel.groups import data_group


def from_test_step(callback: Callback, pl_module: LightningModule, outputs: Any, name: str, shape: str) -> Tensor:
    """Return one of the tensors that ``test_step`` returned.

    Args:
        callback: The callback that needs it.
        pl_module: The model.
        outputs: What its ``test_step`` returned.
        name: Key of the tensor.
        shape: Its shape in words, for the error message.

    Raises:
        UserError: It is not there.
    """
    if not isinstance(outputs, dict) or name not in outputs:
        who = type(callback).__name__
        raise UserError(
            f"{who}: {type(pl_module).__name__}.test_step must return a dict with '{name}' {shape}; "
            f"return it, or remove {who} from trainer.callbacks"
        )
    return outputs[name].detach()


def spread(wanted: int, kept: int, batch: int, batches: int | float, size: int) -> Tensor:
    """Choose samples of a batch so that those of all batches are spread evenly over a test.

    Args:
        wanted: Number of samples to keep of the whole test.
        kept: Number of samples kept so far.
        batch: Number of this batch, from 0.
        batches: Number of batches of the test; infinity where it is unknown, which takes the first samples.
        size: Samples in this batch.

    Returns:
        Positions in the batch, int64 of shape (chosen,), often none; fewer in all than wanted if a batch has fewer
        samples than are due.
    """
    due = wanted if batches == float("inf") else int((batch + 1) * wanted / batches + 0.5)
    chosen = max(0, min(due - kept, wanted - kept, size))
    return torch.linspace(0, size - 1, chosen).round().long()


def gather_rows(trainer: Trainer, rows: Tensor) -> Tensor:
    """Return the rows of all ranks, in the order of the ranks. Call it on every rank.

    Args:
        trainer: The trainer whose ranks they are.
        rows: Shape (rows, ...) on any device; the number of rows may differ between ranks.

    Returns:
        Shape (all rows, ...), on the CPU.
    """
    if trainer.world_size == 1:
        return rows.cpu()
    device = trainer.strategy.root_device
    group = data_group(trainer)
    counts: Any = trainer.strategy.all_gather(torch.tensor([len(rows)], device=device), group).flatten().tolist()
    padded = torch.zeros(max(counts), *rows.shape[1:], dtype=rows.dtype, device=device)  # all alike, to be gathered
    padded[: len(rows)] = rows
    ranks = trainer.strategy.all_gather(padded, group).cpu()
    return torch.cat([rank[:count] for rank, count in zip(ranks, counts, strict=True)])
