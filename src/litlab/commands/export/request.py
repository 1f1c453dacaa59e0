"""What is exported, and how; what a manifest says of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from litlab.data import ExperimentData
from litlab.runs.folder import RunFolder


@dataclass(frozen=True)
class Wanted:
    """What is to be exported, and how.

    Args:
        form: The format.
        quantize: How to quantize, if at all.
        threads: Threads to measure with; None for torch's choice.
        sides: What to measure beside it, of eager and compiled.
    """

    form: str
    quantize: str | None = None
    threads: int | None = None
    sides: tuple[str, ...] = ("eager", "compiled")


@dataclass(frozen=True)
class Source:
    """A trained model, and what it takes to check it.

    Args:
        trainer: A Trainer to test with.
        model: The model, as it was built.
        data: Its data.
        checkpoint: The checkpoint with its weights.
        run: The run, if the checkpoint is in one.
        file: The checkpoint's file.
    """

    trainer: Trainer
    model: LightningModule
    data: ExperimentData
    checkpoint: dict[str, Any]
    run: RunFolder | None
    file: Path
