"""Which process runs a trial, and whether it is still there."""

import os
import socket
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from optuna.trial import FrozenTrial


def me() -> dict[str, Any]:
    """What a trial keeps of the worker that runs it."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "worker": {"space": _process_space(), "born": _born()}}


@cache
def _process_space() -> str:
    """Where process numbers mean the same: one boot of one machine or container."""
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")  # of Linux
    parts = [socket.gethostname(), boot.read_text().strip() if boot.exists() else ""]
    return " ".join([*parts, os.readlink(namespace) if namespace.exists() else ""])


@cache
def _born() -> float:
    return psutil.Process().create_time()


def is_dead(trial: FrozenTrial, silent: bool) -> bool:
    """Whether the worker of a running trial is gone: where that can't be seen, a silent one is taken for dead."""
    worker = trial.user_attrs.get("worker")
    if worker is None:  # it died before it let go of the lock, or the one who asks would not hold it
        return True
    if worker["space"] != _process_space():
        return silent
    try:
        process = psutil.Process(trial.user_attrs["pid"])
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - worker["born"]) > 2
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:  # it is there, but another user's
        return False
