"""What is served: an exported model, or that of a run in PyTorch, behind one interface."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litlab.artifact import Artifact, is_exported

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A model that is ready to be called.

    Args:
        manifest: What is known of it, as `litlab.artifact` writes it.
        text_file: Returns the text of a file that belongs to it, such as ``tokenizer.json``.
        run: Returns its outputs for its inputs, both by their names.
    """

    manifest: dict[str, Any]
    text_file: Callable[[str], str]
    run: Callable[[Arrays], dict[str, np.ndarray]]


def load_model(run: str, settings: Sequence[str], threads: int) -> Model:
    """Load what the user has named.

    Args:
        run: Folder of an export, or a run or checkpoint.
        settings: More of the command line; none for an exported model.
        threads: Threads that compute.

    Raises:
        UserError: There is none, or it can't be loaded here.
    """
    if not is_exported(run):
        return _of_run(run, settings, threads)
    artifact = Artifact(Path(run), threads)
    return Model(artifact.manifest, lambda name: (Path(run) / name).read_text(encoding="utf-8"), artifact)


def _of_run(run: str, settings: Sequence[str], threads: int) -> Model:
    """Build model and data of a run as ``test`` does. The data's files are not needed."""
    import torch

    from litlab.cli.argv import ALONE
    from litlab.cli.quiet import silence_noise
    from litlab.commands.serve.run_model import RunModel

    torch.set_num_threads(threads)
    silence_noise()
    served = RunModel(["test", "--run", run, *ALONE, *settings])
    return Model(served.manifest, served.files.__getitem__, served.answer)
