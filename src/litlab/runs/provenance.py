"""What a run was made from: command, code, versions, hardware, seed and data, with secrets kept
out.
"""

import hashlib
import os
import platform
import re
import socket
import sys
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litlab import __version__
from litlab.runs.folder import RunFolder, read_record, write_json, write_text
from litlab.runs.git import read_work_tree
from litlab.runs.masking import mask, mask_command
from litlab.util import team

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

# What a result may depend on; of other packages the versions are not kept.
PACKAGES = (
    "torch torchvision lightning torchmetrics jsonargparse numpy pandas scikit-learn optuna torchao"
)


def write_origin(trainer: "Trainer", run: RunFolder) -> None:
    """Write ``provenance.json``, and the uncommitted changes of the code beside it.

    Args:
        trainer: The trainer of the run, its data set up.
        run: The run. What a resumed fit is made from stands beside what it was begun with.
    """
    # surrogateescape: a source that is no UTF-8 is kept byte for byte
    commit, diff = read_work_tree()
    digest = hashlib.sha256(diff.encode(errors="surrogateescape")).hexdigest()
    name = f"uncommitted_{digest[:8]}.diff"  # the same changes are kept once
    if diff:
        write_text(run.path / name, diff)

    # A DataModule of any kind; those of litlab say more of their data
    data: Any = getattr(trainer, "datamodule", None)
    seed = os.environ.get("PL_GLOBAL_SEED")  # where Lightning's seed_everything leaves it
    origin = mask({
        "started": tell_time(),
        "command": mask_command_line(),
        "commit": commit,
        "dirty": bool(diff),
        "uncommitted": {"file": name} if diff else None,
        "versions": list_versions(),
        "hardware": describe_hardware(trainer),
        "seed": None if seed is None else int(seed),
        "data": {
            "class": type(data).__name__,
            "description": str(getattr(data, "description", "")),
            "fingerprint": str(getattr(data, "fingerprint", "")),
            "generated": bool(getattr(data, "generated", False)),
        },
    })  # fmt: skip

    # A resumed fit is added to what the run was begun with, which `reproduce` repeats
    first = read_record(run.provenance)
    if first:
        first["continued"] = [*first.get("continued", []), origin]
    write_json(run.provenance, first or origin)


def mask_command_line() -> list[str]:
    """Return the command line as it can be typed again, secrets masked."""
    # By now `fit` has named the run by its folder in sys.argv
    return team.build_command(*mask_command(sys.argv[1:]))


def tell_time() -> str:
    """Return the time, with its offset to UTC, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def list_versions() -> dict[str, str]:
    """Return the versions of Python, the team's package, and the packages that decide what a run
    does.
    """
    found = {"python": platform.python_version(), "litlab": __version__}
    # Of a package that is not installed there is nothing to say
    for name in (team.package(), *PACKAGES.split()):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def describe_hardware(trainer: "Trainer") -> dict[str, Any]:
    """Describe the machine, and how much of it the run uses."""
    import torch  # here, as `reproduce` uses other functions of this file, without torch

    device = trainer.strategy.root_device
    cpus = Path("/proc/cpuinfo")  # of Linux
    text = cpus.read_text(encoding="utf-8") if cpus.exists() else ""
    model = re.search(r"model name\s*: (.*)", text)
    return {
        "host": socket.gethostname(),
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "ranks": trainer.world_size,
        "strategy": type(trainer.strategy).__name__,
        "precision": str(trainer.precision),
    }
