"""Run folders written by hand, as `Run` and the command line leave them, and a command that makes
one.
"""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from litlab.runs.folder import RunFolder, read_json

CONFIG = {"data": {"api_key": "hunter2x", "size": 3}}
COMMIT = "1234567890abcdef1234567890abcdef12345678"


def command(run: RunFolder | None = None) -> Any:
    """What a `Run` asks of a parsed command line."""
    trainer = SimpleNamespace(default_root_dir=None, logger=None, fast_dev_run=False)
    config = SimpleNamespace(trainer=trainer, experiment="tiny", data_changed=False)
    line = SimpleNamespace(run=run, is_auto=False)
    settings = {"get_settings": lambda: CONFIG, "read_settings": lambda file: CONFIG}
    return SimpleNamespace(verb="fit", config=config, line=line, **settings)


def write_run(
    root: Path,
    name: str,
    *,
    status: str = "finished",
    best: float = 0.8,
    mode: str = "max",
    hours_ago: float = 2,
    monitor: str = "val/acc",
    test: dict | None = None,
    width: int = 16,
    generated: bool = False,
    **provenance,
) -> RunFolder:
    """A run with all its files; keyword arguments not named go into `provenance.json`."""
    run = RunFolder(root / name)
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "last.ckpt").touch()
    model = {"class_path": "auks.images.SmallCNN", "init_args": {"width": width}}
    run.config.write_text(yaml.safe_dump({"seed_everything": 0, "model": model, "ckpt_path": None}))
    failed = (
        {"reason": "RuntimeError: it broke", "place": {"epoch": 1, "line": "a.py:7"}}
        if status == "failed"
        else {}
    )
    write(run.status, status=status, started=date(hours_ago), ended=None, **failed)
    write(run.metrics, val={monitor: best, "val/loss": 1.0}, test=test or {}, epochs=3, steps=12,
          seconds=90.0, peak_memory_gib=1.25,
          best={"monitor": monitor, "mode": mode, "value": best,
                "checkpoint": "best.ckpt"})  # fmt: skip
    if generated:
        (run.path / "GENERATED_DATA.txt").touch()
    command = "python -m auks fit --config configs/images.yaml".split()
    write(
        run.provenance,
        **{"command": command, "commit": COMMIT, "dirty": False, "seed": 0, **provenance},
    )
    return run


def write_group(
    root: Path, name: str, best: list[float], kind: str = "seed", hours_ago: float = 3, **settings
):
    """A group whose members were run one after another, and the files that `repeat` leaves."""
    group = RunFolder(root / name)
    for member, value in enumerate(best):
        run = f"{name}/{kind}_{member}/version_0"
        write_run(root, run, best=value, hours_ago=hours_ago - member / 10, seed=member, **settings)
    write(group.group, setting=kind, members=[0, 1, 2])
    members = f"{len(best)} of 3"
    write(group.status, status="finished", members=members, started=date(hours_ago))
    metrics = read_json(group.path / f"{kind}_0/version_0/metrics.json")
    metrics["best"]["value"] = metrics["val"]["val/acc"] = sum(best) / len(best)
    write(group.metrics, **metrics, deviation={"val/acc": 0.05})
    group.config.write_text((group.path / f"{kind}_0/version_0/config.yaml").read_text())
    write(group.provenance, commit=COMMIT, dirty=False)
    return group


def date(hours_ago: float) -> str:
    # In zones in which the oldest of some runs has the latest time of day
    now = datetime.now(timezone(timedelta(hours=min(2 * hours_ago, 23))))
    return (now - timedelta(hours=hours_ago)).isoformat(timespec="seconds")


def write(path: Path, **content) -> None:
    path.write_text(json.dumps(content))
