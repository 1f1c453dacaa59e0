"""Run folders written by hand, as `RunRecord` and the command line leave them."""

import json
import os
import socket
from datetime import datetime, timedelta
from pathlib import Path

import yaml

from litlab.runs.folder import RunFolder

COMMIT = "1234567890abcdef1234567890abcdef12345678"


def write_run(
    root: Path, name: str, *, status: str = "finished", best: float = 0.8, mode: str = "max", hours_ago: float = 2,
    monitor: str = "val/acc", test: dict | None = None, width: int = 16, generated: bool = False, **provenance,
) -> RunFolder:  # fmt: skip
    """A run with all its files; keyword arguments not named go into `provenance.json`."""
    run = RunFolder(root / name)
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "last.ckpt").touch()
    started = (datetime.now().astimezone() - timedelta(hours=hours_ago)).isoformat(timespec="seconds")
    model = {"class_path": "auks.images.SmallCNN", "init_args": {"width": width}}
    run.config.write_text(yaml.safe_dump({"seed_everything": 0, "model": model, "ckpt_path": None}))
    write(run.status, status=status, reason="RuntimeError: it broke" if status == "failed" else None, started=started,
          ended=None, pid=os.getpid(), host=socket.gethostname(), seconds=90.0)  # fmt: skip
    write(run.metrics, val={"val/acc": best - 0.1, "val/loss": 1.0}, test=test or {}, epochs=3, steps=12, seconds=90.0,
          peak_memory_gib=1.25, generated_data=generated,
          best={"monitor": monitor, "mode": mode, "value": best, "epoch": 1, "checkpoint": "e.ckpt"})  # fmt: skip
    command = ["python", "-m", "auks", "fit", "--config", "configs/images.yaml"]
    write(run.provenance, **{"command": command, "commit": COMMIT, "dirty": False, "seed": 0, **provenance})
    return run


def write(path: Path, **content) -> None:
    path.write_text(json.dumps(content))
