"""What every benchmark says about itself: when, what code, what machine; how it runs a fit and sums
up repeats.
"""

import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning
import torch
import torchvision

RESULTS = Path(__file__).parent / "results"
CONFIGS = Path(__file__).resolve().parents[1] / "configs"
PATH = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")  # up to the last name of an absolute path


def environment() -> dict[str, Any]:
    """Command, date, commit, versions and hardware."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, cwd=RESULTS
        ).stdout.strip()

    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(
            (line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu
        )
    threads = torch.get_num_threads()
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": git("rev-parse", "--short", "HEAD")
        + (" + changes" if git("status", "--porcelain") else ""),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torchvision": torchvision.__version__,
            "lightning": lightning.__version__,
        },
        "cpu": f"{cpu}, {threads} thread{'s' * (threads != 1)}",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def project(folder: Path | str, *arguments: object, threads: int = 1) -> None:
    """Run ``python -m project`` in a folder, as a process of its own.

    Args:
        folder: Where its run folders go.
        arguments: The command line.
        threads: Of each process.

    Raises:
        SystemExit: If it fails; with what it said.
    """
    command = [sys.executable, "-m", "project", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")


def split_flags() -> tuple[list[str], list[str]]:
    """Return the benchmark's own arguments, and those after ``--``, which are for its fits."""
    own = sys.argv[1:]
    end = own.index("--") if "--" in own else len(own)
    return own[:end], own[end + 1 :]


def summarise(values: list[float]) -> dict[str, float]:
    """Median, least and greatest of the repeats."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def earlier(name: str, rows: Collection[str]) -> dict[str, Any]:
    """Return these rows of ``results/NAME.json`` if it is there, each with its command, date and
    commit.
    """
    path = RESULTS / f"{name}.json"
    result = json.loads(path.read_text()) if path.is_file() else {}
    made = {key: result[key] for key in ("command", "date", "commit") if key in result}
    return {key: made | row for key, row in result.items() if key in rows}


def save(name: str, results: dict[str, Any]) -> None:
    """Print the results and write them, with the environment, to ``results/NAME.json``; without
    folders of here.
    """
    text = PATH.sub("", json.dumps({**environment(), **results}, indent=2))
    # The innermost on one line
    text = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda part: " ".join(part[0].split()), text)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(text + "\n")
