"""What a run was made from: command, code, versions, hardware, seed and data."""

import os
import platform
import re
import socket
import sys
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litlab import __version__
from litlab.runs.git import WorkTree, work_tree
from litlab.runs.masking import mask, mask_command
from litlab.util import team

if TYPE_CHECKING:
    from lightning.pytorch import Trainer


def provenance(trainer: "Trainer", diff_name: str = "uncommitted.diff") -> tuple[dict[str, Any], str]:
    """Describe what a run is made from, without secrets.

    Args:
        trainer: The trainer of the run, its data set up.
        diff_name: What the file of the uncommitted changes will be called.

    Returns:
        The content of ``provenance.json``, and the uncommitted changes, empty if there are none.
    """
    code = work_tree()
    seed = os.environ.get("PL_GLOBAL_SEED")  # where Lightning's seed_everything leaves it
    data = getattr(trainer, "datamodule", None)
    described = {
        "started": now(),
        "command": command(),
        "directory": str(Path.cwd()),
        **describe_code(code, diff_name),
        "versions": versions(),
        "hardware": hardware(trainer),
        "seed": int(seed) if seed is not None else None,
        "data": {
            "class": type(data).__name__ if data is not None else None,
            "description": _text(getattr(data, "description", None)),
            "fingerprint": _text(getattr(data, "fingerprint", None)),
            "generated": bool(getattr(data, "generated", False)),
        },
    }
    return mask(described), code.diff


def is_generated(metrics: dict[str, Any], made: dict[str, Any]) -> bool | None:
    """Return whether the data of a run was generated; None where neither of two files says so.

    Args:
        metrics: The content of ``metrics.json``.
        made: That of ``provenance.json``.
    """
    known = [metrics.get("generated_data"), (made.get("data") or {}).get("generated")]
    return next((each for each in known if each is not None), None)


def describe_code(code: WorkTree, diff_name: str) -> dict[str, Any]:
    """Return the entries on the code: commit, whether it was changed, and where the changes are."""
    described: dict[str, Any] = {"commit": code.commit, "dirty": code.dirty}
    if code.problem:
        described["why_no_commit"] = code.problem
    if code.dirty:
        described["uncommitted"] = {"file": diff_name, "sha256": code.digest, "complete": code.complete}
    if code.untracked:
        described["untracked"] = list(code.untracked[:100])
    return described


def command() -> list[str]:
    """Return the command line as it can be typed again, secrets masked."""
    program, *arguments = sys.argv
    is_project = Path(program).name in ("__main__.py", team.package())
    start = team.command() if is_project else ["python", program]
    return [*start, *mask_command(arguments)]


def versions() -> dict[str, str]:
    """Return the versions of Python, of the team's package, of litlab and of all packages that it requires."""
    found = {"python": platform.python_version()}
    try:
        name = _distribution()
        declared = metadata.requires(name) or []
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:  # run from the sources without being installed
        declared = ["torch", "lightning", "jsonargparse", "numpy"]
    found["litlab"] = __version__
    for requirement in declared:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if "extra ==" not in requirement:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue  # declared for another platform
    return found


def _distribution() -> str:
    """Return the installed distribution of the team's package, or else that of litlab.

    It usually has the package's name; if not, all installed distributions are searched, which takes a while.
    """
    try:
        return metadata.distribution(team.package()).name
    except metadata.PackageNotFoundError:
        known = metadata.packages_distributions()
        return next((known[name][0] for name in (team.package(), "litlab") if name in known), team.package())


def hardware(trainer: "Trainer") -> dict[str, Any]:
    """Describe the machine, and how much of it the run uses."""
    import psutil
    import torch

    device = trainer.strategy.root_device
    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "device": device.type,
        "ranks": trainer.world_size,
        "nodes": trainer.num_nodes,
        "strategy": type(trainer.strategy).__name__,
        "precision": str(trainer.precision),
    }
    if device.type == "cuda":
        found["device_name"] = torch.cuda.get_device_name(device)
        found["cuda"] = torch.version.cuda
    return found


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def now() -> str:
    """Return the time, with its offset to UTC, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
