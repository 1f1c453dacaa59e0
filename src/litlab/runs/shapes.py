"""What the entries of a run's JSON files must be, so that no reader trips over a damaged or foreign one."""

from collections.abc import Callable
from typing import Any


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and (not isinstance(value, int) or abs(value) < 2**63)


def _count(value: Any) -> bool:
    return isinstance(value, int) and _number(value)


def _of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(item is None or _number(item) for item in value.values())


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _best(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("monitor"), str) and value.get("mode") in ("min", "max")


def _dicts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


_TEXT, _DICT, _BOOL = _of(str), _of(dict), _of(bool)
_KINDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "status.json": {
        "status": _TEXT, "reason": _TEXT, "test": _TEXT, "started": _TEXT, "ended": _TEXT, "host": _TEXT,
        "slurm_job_id": _TEXT, "pid": _count, "seconds": _number,
    },
    "metrics.json": {
        "val": _numbers, "test": _numbers, "best": _best, "best.value": _number, "best.epoch": _count,
        "best.checkpoint": _TEXT, "epochs": _count, "steps": _count, "seconds": _number, "peak_memory_gib": _number,
        "generated_data": _BOOL,
    },
    "provenance.json": {
        "command": _texts, "directory": _TEXT, "commit": _TEXT, "dirty": _BOOL, "data": _DICT, "data.generated": _BOOL,
        "versions": _DICT, "hardware": _DICT, "uncommitted": _DICT, "uncommitted.file": _TEXT,
        "uncommitted.sha256": _TEXT, "continued": _dicts,
    },
}  # fmt: skip


def misshapen(file: str, content: dict[str, Any]) -> str:
    """The first entry that is not of its kind, in a few words; empty if all are. Any entry may be missing or null.

    Args:
        file: Name of the file, such as ``status.json``; of others nothing is known.
        content: What it holds.
    """
    for key, is_of_kind in _KINDS.get(file, {}).items():
        section, _, name = key.partition(".")
        value = content.get(section)
        if name:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and not is_of_kind(value):
            text = repr(value)
            return f"'{key}' is {text if len(text) <= 60 else text[:57] + '...'}"
    return ""
