"""The runs of ``fit --seeds 0,1,2`` or ``fit --folds 5``, which differ in one setting.

They are ordinary runs in ``lightning_logs/<experiment>/seeds_0/seed_S/version_N``. The folder of
the group has the files of a run, with means over those that are finished, and ``repeat.json``.
"""

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs.find import list_runs
from litlab.runs.folder import (
    ROOT,
    RunFolder,
    check_experiment,
    read_json,
    read_or_note,
    read_record,
    write_json,
    write_text,
)
from litlab.runs.masking import mask
from litlab.runs.provenance import tell_time
from litlab.runs.results import format_spread, measure_spreads
from litlab.runs.table import describe_run, print_problems, show_table
from litlab.util.yaml import dump_config

# What is about one run, and so makes no sense for several.
REFUSED = ("resume", "check", "plan", "ckpt_path")
LARGEST = ("epochs", "steps", "peak_memory_gib")  # of all runs


class RunGroup:
    """The group of a command with ``--seeds`` or ``--folds``: one that has its settings, or a new
    one.

    Args:
        command: The command line of ``fit``, parsed.

    Attributes:
        members: The seeds, or the numbers of the folds.
        folder: The folder of the group.

    Raises:
        UserError: If the command has a flag that makes no sense for several fits.
    """

    def __init__(self, command: Any) -> None:
        config = command.config
        self.kind = "seed" if config.seeds else "fold"
        self.members = read_seeds(config.seeds) if config.seeds else list(range(config.folds))
        check_repeatable(command, self.kind)
        self._started = tell_time()  # in `runs`: when the newest command of the group began

        self._root = Path(config.trainer.default_root_dir or ".") / ROOT
        self.folder = self._choose_folder(config.experiment, command.get_settings())

    def _choose_folder(self, experiment: str, settings: dict[str, Any]) -> RunFolder:
        # Two groups with the same settings are one, to which further seeds are added; folds are
        # comparable only where there are as many of them.
        shared = {
            name: value
            for name, value in settings.items()
            if name not in ("experiment", "seed_everything")
        }
        key = {"setting": self.kind, "settings": mask(shared)}
        if self.kind == "fold":
            key["members"] = self.members

        # The first group with these settings, or the first number that is free. Its file has the
        # members of all commands, so the key is compared with a part of it
        folders = (
            RunFolder(self._root / experiment / f"{self.kind}s_{number}")
            for number in itertools.count()
        )
        folder = next(
            folder
            for folder in folders
            if key.items() <= read_json(folder.group).items() or not folder.path.exists()
        )

        # Its config is that of a run, but for what differs between its runs
        before = read_json(folder.group).get("members", [])
        members = list(dict.fromkeys([*before, *self.members]))
        write_json(folder.group, {**key, "members": members})
        write_text(folder.config, dump_config(shared))
        return folder

    def begin(self, member: int) -> tuple[Path, list[str]]:
        """Say that the fit of a member begins; return the folder of its runs, and the flags that it
        does not share with the others.
        """
        # As an experiment of its own below the group, so that `fit` need know nothing of groups
        self.write_status("running")
        folder = self.folder.path / f"{self.kind}_{member}"
        print(f"\n{RunFolder(folder).name}", flush=True)
        if self.kind == "seed":
            setting = f"--seed_everything={member}"
        else:
            setting = f"--data.fold={member}/{len(self.members)}"
        return folder, [f"--experiment={folder.relative_to(self._root)}", setting]

    def stop(self, signum: int) -> None:
        """Say that a signal has stopped the fit of a member, and with it the group."""
        self.write_status("interrupted")
        name = signal.Signals(signum).name
        print(f"{name}: stopped; the same command continues", file=sys.stderr)

    def write_status(self, status: str) -> str:
        """Write the status of the group, and the means over its finished runs.

        Args:
            status: ``running``, ``interrupted`` or ``finished``.

        Returns:
            The status; ``failed`` where not all runs of a finished group are finished.
        """
        # Of all members, also those that earlier commands have added
        finished = self._list_finished()
        members = read_json(self.folder.group)["members"]
        if status == "finished" and len(finished) < len(members):
            status = "failed"
        counts = f"{len(finished)} of {len(members)}"
        write_json(
            self.folder.status, {"status": status, "members": counts, "started": self._started}
        )
        if finished:
            self._write_means(finished)
        return status

    def _write_means(self, runs: list[dict[str, Any]]) -> None:
        # The metrics of a run, with means in their place and deviations beside them
        found = measure_spreads(runs)
        means = {name: spread.mean for name, spread in found.items()}
        # As in metrics.json of a run, so that `runs`, `compare` and `report` read both alike
        best = runs[0].get("best") or {}
        value = means.get(best.get("monitor", ""))
        write_json(self.folder.metrics, {
            "best": None if value is None else {**best, "value": value},
            "val": means,
            "test": {name: means[name] for name in runs[0]["test"] or {}},
            "deviation": {name: spread.deviation for name, spread in found.items()},
            "seconds": round(sum(run["seconds"] for run in runs), 3),
            **{name: max(run[name] for run in runs) for name in LARGEST},
        })  # fmt: skip
        # All are of one commit and machine, as a rule: those of the newest
        origin = read_or_note([], read_record, list_runs(self.folder.path)[0].provenance)
        write_json(self.folder.provenance, origin | {"seed": None})

    def print_results(self) -> None:
        """Print mean and spread of each metric, and what is wrong with single runs."""
        found = measure_spreads(self._list_finished())
        rows = [[name, *format_spread(spread)] for name, spread in found.items()]
        header = ["metric", "mean", "deviation", "95 % interval", "runs"]
        show_table(header, rows, self.folder.name)
        print_problems(map(describe_run, list_runs(self.folder.path)))

    def _list_finished(self) -> list[dict[str, Any]]:
        runs = map(describe_run, list_runs(self.folder.path))
        # A run with a damaged file lacks metrics that the others have
        return [run for run in runs if run["status"] == "finished" and not run["problems"]]


def read_seeds(text: str) -> list[int]:
    """Read seeds with commas between them.

    Raises:
        UserError: If they are no seeds, fewer than two, or one of them is there twice.
    """
    # A seed has at most ten digits. What is none, or is there twice, leaves fewer than there should
    # be by the commas
    seeds = [int(word) for word in text.split(",") if word.isdecimal() and len(word) < 11]
    if len(set(seeds)) < max(2, text.count(",") + 1):
        raise UserError(
            f"--seeds: '{text[:40]}' is not valid; give two or more, each once, such as 0,1,2"
        )
    return seeds


def check_repeatable(command: Any, kind: str) -> None:
    """Refuse flags and circumstances that make no sense for several fits.

    Raises:
        UserError: Names them.
    """
    config = command.config
    # With --resume auto and no run to resume, the config has no resume
    names = [name for name in REFUSED if config[name]] or ["resume"] * command.line.is_auto
    flags = [f"--{name}" for name in names]
    if config.seeds and config.folds:
        flags.append("--folds")
    if flags:
        raise UserError(
            f"--{kind}s: it doesn't go together with {', '.join(flags)}; leave one of them out"
        )

    # Launched by torchrun or srun, each process would start all fits
    if os.environ.keys() & {"RANK", "LOCAL_RANK"} or os.environ.get("SLURM_PROCID", "0") != "0":
        raise UserError(
            f"--{kind}s: it starts the fits, one by one; start it without torchrun or srun"
        )

    # What the fits must have: metrics to compare, and folds that the data knows
    if config.trainer.logger is False or config.trainer.fast_dev_run:
        raise UserError(
            f"--{kind}s: without a logger or with fast_dev_run no metrics are kept; unset them"
        )
    if kind == "fold" and "fold" not in config.data.get("init_args", {}):
        raise UserError(
            f"--folds: {config.data.class_path} has no setting 'fold'; repeat the fit with --seeds"
        )
    check_experiment(config.experiment)
