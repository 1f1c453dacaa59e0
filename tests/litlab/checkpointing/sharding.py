"""Processes that write sharded checkpoints; not a test itself."""

import json
from pathlib import Path

from tests.conftest import ROOT
from tests.processes import Python, ranks

PROGRAM = ROOT / "tests/litlab/checkpointing/sharded_program.py"


def start(folder: Path, count: int, cases: dict[str, dict]) -> list[Python]:
    """Processes that train one case after another, as the program's docstring says."""
    arguments = PROGRAM, folder, json.dumps(cases)
    return [
        Python(*arguments, cwd=folder, environment={**of_rank, "PYTHONPATH": ROOT}, merge=True)
        for of_rank in ranks(count)
    ]


def finish(processes: list[Python], code: int = 0) -> list[str]:
    """What they have printed, once all have ended with an exit code."""
    printed = [process.communicate(120)[0] for process in processes]
    assert [process.wait() for process in processes] == [code] * len(processes), printed
    return printed
