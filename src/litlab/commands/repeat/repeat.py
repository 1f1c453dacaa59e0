"""``fit --seeds 0,1,2``: the same fit with several seeds, or ``fit --folds 5`` with each fold of
the data.

Each fit is an ordinary one, in ``lightning_logs/<experiment>/seeds_0/seed_S/version_N``. The folder
of the group has the files of a run, with means over those that are finished, and ``repeat.json``.
"""

import argparse
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import yaml

from litlab.cli.argv import Flags
from litlab.cli.config import Command
from litlab.cli.trust import list_modules
from litlab.errors import UserError
from litlab.runs.children import run_fit
from litlab.runs.find import all_runs
from litlab.runs.folder import (
    ROOT,
    RunFolder,
    check_experiment,
    read_json,
    read_or_note,
    write_json,
    write_text,
)
from litlab.runs.provenance import mask, now
from litlab.runs.results import cells, spreads
from litlab.runs.table import describe, print_problems, show_table
from litlab.util.options import Options, count

REFUSED = ("--resume", "--check", "--plan", "--ckpt_path", "--print_config")
DESCRIPTION = """\
Run the same fit with several seeds, or once with each fold of the data as its test split, one after
another, and show mean, standard deviation and 95 %% confidence interval of each metric. All other
arguments are those of `fit`; see `fit --help`. Ctrl-C stops it; the same command continues it.

  %(prog)s --config configs/mine.yaml --seeds 0,1,2
  %(prog)s --config configs/mine.yaml --folds 5
"""
LARGEST = ("epochs", "steps", "peak_memory_gib")  # of all members


def main(arguments: list[str]) -> int:
    options = Options("fit", DESCRIPTION)
    kinds = options.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--seeds", metavar="S,S", type=read_seeds, help="two or more, such as 0,1,2")
    kinds.add_argument("--folds", metavar="K", type=count, help="how many, such as 5")
    # Everything else is for the fits, and is parsed once before the first of them.
    chosen, flags = options.parse_known_args(arguments)
    kind = "seed" if chosen.seeds else "fold"
    members = chosen.seeds or list(range(chosen.folds))
    if Flags(flags).has(*REFUSED):
        raise UserError(
            f"--{kind}s: it doesn't go together with {', '.join(REFUSED)}; leave one of them out"
        )
    command = Command(["fit", *flags])
    _check(command.config, kind)

    # One fit after the other, in the folder of those with the same settings
    root = Path(command.config.trainer.default_root_dir or ".") / ROOT
    check_experiment(command.config.experiment)
    group = _find_group(root / command.config.experiment, kind, command.settings(), members)
    with group.lock():
        for number in members:
            _write_status(group, "running")
            folder = group.path / f"{kind}_{number}"
            print(f"\n{RunFolder(folder).name}", flush=True)
            value = (
                f"--seed_everything={number}"
                if kind == "seed"
                else f"--data.fold={number}/{len(members)}"
            )
            fit = [*flags, f"--experiment={folder.relative_to(root)}", value]
            code = run_fit(folder, fit, list_modules(command.line))
            if code > 128:
                _write_status(group, "interrupted")
                print(
                    f"{signal.Signals(code - 128).name}: stopped; the same command continues",
                    file=sys.stderr,
                )
                return code
            # Refused before it began, as it would be with any other
            if code and not all_runs(folder):
                return code
        _write_status(group, "finished")

    # All that are finished, also by earlier commands
    rows = [[name, *cells(spread)] for name, spread in spreads(_list_finished(group)).items()]
    show_table(["metric", "mean", "deviation", "95 % interval", "runs"], rows, group.name)
    print_problems(map(describe, all_runs(group.path)))
    return 0 if read_json(group.status)["status"] == "finished" else 1


def read_seeds(text: str) -> list[int]:
    seeds = [int(word) for word in text.split(",") if word.isdecimal() and len(word) < 11]
    if len(set(seeds)) < max(2, text.count(",") + 1):
        raise argparse.ArgumentTypeError(
            f"'{text[:40]}' is not valid; give two or more, each once, such as 0,1,2"
        )
    return seeds


def _check(config: Any, kind: str) -> None:
    if os.environ.keys() & {"RANK", "LOCAL_RANK"} or os.environ.get("SLURM_PROCID", "0") != "0":
        raise UserError(
            f"--{kind}s: it starts the fits, one by one; start it without torchrun or srun"
        )
    if config.trainer.logger is False or config.trainer.fast_dev_run:
        raise UserError(
            f"--{kind}s: without a logger or with fast_dev_run no metrics are kept; unset them"
        )
    if kind == "fold" and "fold" not in config.data.get("init_args", {}):
        raise UserError(
            f"--folds: {config.data.class_path} has no setting 'fold'; repeat the fit with --seeds"
        )


def _find_group(
    experiment: Path, kind: str, settings: dict[str, Any], members: list[int]
) -> RunFolder:
    """Return the group of an experiment that has the same settings, or a new one."""
    # Folds are one result together; seeds can be added to those that are there.
    varied = ("experiment", "seed_everything")
    shared = {name: value for name, value in settings.items() if name not in varied}
    key: dict[str, Any] = {"setting": kind, "settings": mask(shared)}
    if kind == "fold":
        key["members"] = members
    groups = (RunFolder(experiment / f"{kind}s_{number}") for number in itertools.count())
    group = next(
        group
        for group in groups
        if key.items() <= read_json(group.group).items() or not group.path.exists()
    )

    # It begins, or gets members in addition to those that it has.
    before = read_json(group.group).get("members", [])
    write_json(group.group, {**key, "members": list(dict.fromkeys([*before, *members]))})
    write_text(group.config, yaml.safe_dump(shared, sort_keys=False, allow_unicode=True))
    return group


def _list_finished(group: RunFolder) -> list[dict[str, Any]]:
    rows = map(describe, all_runs(group.path))
    return [row for row in rows if row["status"] == "finished" and not row["problems"]]


def _write_status(group: RunFolder, status: str) -> None:
    # The files of a run, so that `runs` and `report` read a group as one.
    metrics = _list_finished(group)
    members = read_json(group.group)["members"]
    if status == "finished" and len(metrics) < len(members):
        status = "failed"
    content = {"status": status, "members": f"{len(metrics)} of {len(members)}"}
    write_json(group.status, {**content, "started": now()})
    if not metrics:
        return

    # Means, deviations, and the cost of all
    found = spreads(metrics)
    means = {name: spread.mean for name, spread in found.items()}
    best = metrics[0].get("best") or {}
    value = means.get(best.get("monitor", ""))
    write_json(group.metrics, {
        "best": None if value is None else {**best, "value": value},
        "val": means,
        "test": {name: means[name] for name in metrics[0]["test"] or {}},
        "deviation": {name: spread.deviation for name, spread in found.items()},
        "seconds": round(sum(each["seconds"] for each in metrics), 3),
        **{name: max(each[name] for each in metrics) for name in LARGEST},
    })  # fmt: skip
    origin = read_or_note([], read_json, all_runs(group.path)[0].provenance)
    write_json(group.provenance, origin | {"seed": None})
