"""What is exported, and how; what a manifest says of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from litlab.artifact.manifest import VERSION, sha256
from litlab.data import ExperimentData
from litlab.data.serving import Serving
from litlab.runs.folder import RunFolder, read_json


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


def describe(serving: Serving, run: RunFolder | None, checkpoint: Path) -> dict[str, Any]:
    """Return what a manifest says of a model: what goes in and comes out, and the run that it is from.

    Args:
        serving: Inputs and outputs.
        run: The run, if the checkpoint is in one.
        checkpoint: The checkpoint's file.
    """
    return {
        "version": VERSION,
        "kind": serving.kind,
        "inputs": [spec.as_dict() for spec in serving.inputs],
        "outputs": [spec.as_dict() for spec in serving.outputs],
        "limits": serving.most,
        "facts": serving.facts(),
        "run": {
            "name": checkpoint.name if run is None else run.name,
            "commit": None if run is None else read_json(run.provenance).get("commit"),
            "checkpoint_sha256": sha256(checkpoint),
        },
    }
