"""The types of the entries in a run's JSON files, by which damaged and foreign files are told."""

from pathlib import Path
from typing import Any, get_args, get_origin

from litlab.errors import UserError

SESSION = {
    "started": str, "command": list[str], "commit": str, "dirty": bool, "versions": dict[str, Any],
    "uncommitted": {"file": str},
    "hardware": {"cpu": str, "cores": int, "device": str, "device_name": str, "precision": str, "ranks": int},
}  # fmt: skip
# An entry may be missing or null unless its type is in a tuple.
FILES: dict[str, Any] = {
    "status.json": {
        "status": str, "reason": str, "started": str, "ended": str, "slurm_job_id": str,
    },
    "metrics.json": {
        "val": dict[str, float], "test": dict[str, float],
        "best": {"monitor": (str,), "mode": (str,), "value": float, "epoch": int, "checkpoint": str},
        "epochs": int, "steps": int, "seconds": float, "peak_memory_gib": float,
    },
    "provenance.json": {
        **SESSION, "directory": str, "seed": int, "continued": [SESSION],
        "data": {"class": str, "description": str, "fingerprint": str, "generated": bool},
    },
    "baselines.json": dict[str, dict[str, float]],
}  # fmt: skip


def check_entries(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return what a file of a run holds.

    Raises:
        UserError: If an entry is not of its type.
    """
    problem = wrong_entry(path.name, content)
    if problem:
        raise UserError(f"{path} is damaged ({problem}); delete it, or restore it")
    return content


def wrong_entry(file: str, content: dict[str, Any]) -> str:
    """Return the first entry that is not of its type, in a few words; empty if all are.

    Args:
        file: Name of the file, such as ``status.json``; other files may hold anything.
        content: What it holds.
    """
    kinds = FILES.get(file, {})
    if get_origin(kinds) is dict:  # entries of any name
        kinds = dict.fromkeys(content, get_args(kinds)[1])
    for name, kind in kinds.items():
        if not _fits(content.get(name), kind):
            text = repr(content[name])
            return f"'{name}' is {text if len(text) <= 60 else text[:57] + '...'}"
    return ""


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, tuple):
        return value is not None and _fits(value, kind[0])
    if value is None or kind is Any:
        return True
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(_fits(value.get(name), of) for name, of in kind.items())
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(item, kind[0]) for item in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(_fits(item, get_args(kind)[1]) for item in value.values())
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(item, get_args(kind)) for item in value)
    if isinstance(value, int) and abs(value) >= 2**63:
        return False
    return isinstance(value, (int, float) if kind is float else kind)
