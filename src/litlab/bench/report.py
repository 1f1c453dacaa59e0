"""What is written of the trials: ``bench.json``, and the best changes as an overlay."""

from pathlib import Path
from typing import Any

import yaml

from litlab.bench.changes import Changes, title
from litlab.bench.runner import Runner
from litlab.bench.search import Ratio
from litlab.runs.folder import write_json, write_text
from litlab.runs.masking import mask, mask_command
from litlab.runs.provenance import command, now, versions, work_tree
from litlab.util.team import typed


def write_record(path: Path, runner: Runner, best: Changes, ratios: dict[str, Ratio]) -> None:
    """Write all that was measured, with its provenance, as JSON.

    Args:
        path: The file.
        runner: What has run the trials.
        best: The changes that are in the overlay.
        ratios: By the name of a side that was measured in turns: how fast it is.
    """
    code = work_tree()
    trials = [
        {
            "change": title(trial.changes),
            "flags": [change.flag for change in trial.changes],
            "changes_what_is_learned": any(change.learns for change in trial.changes),
            "measured": None if trial.measured is None else {**vars(trial.measured), "rate": trial.measured.rate},
            "reason": trial.reason or None,
        }
        for trial in runner.trials
    ]
    content: dict[str, Any] = {
        "date": now(),
        "command": command(),
        "commit": code.commit,
        "dirty": bool(code.diff),
        "versions": versions(),
        **runner.facts,
        "peak_flops": runner.peaks,
        "trials": trials,
        "best": title(best) if best else None,
        "ratios": {name: {"median": ratio.median, "turns": ratio.turns} for name, ratio in ratios.items()},
    }
    write_json(path, mask(content))


def write_overlay(path: Path, runner: Runner, best: Changes, ratio: Ratio, arguments: list[str]) -> None:
    """Write the best changes as an overlay for ``fit``.

    Args:
        path: The file.
        runner: What has run the trials.
        best: The changes.
        ratio: How fast they are.
        arguments: The command line of ``fit`` that they were found with.
    """
    lines = [
        f"Settings that pay on this machine. {runner.heading}",
        f"{title(best)}: {ratio}. Measured {now()} by",
        f"  {' '.join(command())}",
        f"  {' '.join([typed('fit'), *mask_command(arguments), '--config', str(path)])}",
    ]
    if learns := [change.name for change in best if change.learns]:
        lines.append(f"They change what is learned: {', '.join(learns)}.")
    settings = dict(change.setting for change in best)
    write_text(path, "".join(f"# {line}\n" for line in lines) + yaml.safe_dump(settings, sort_keys=False))
