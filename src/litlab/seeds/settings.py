"""The settings of a ``fit --seeds``: resolved, checked, and by which group of runs they were used before."""

import json
from pathlib import Path
from typing import Any

import yaml

from litlab.cli.named_modules import values_of
from litlab.errors import UserError
from litlab.runs.claim import check_experiment
from litlab.runs.compare import as_text, differences, flat_config
from litlab.runs.folder import ROOT, RunFolder, root_of
from litlab.runs.masking import mask
from litlab.runs.seed_group import SeedGroup
from litlab.util.text import some
from litlab.util.yaml import Loader

REFUSED = ("--seed_everything", "--resume", "--check", "--plan", "--ckpt_path", "--print_config")
# What is not a setting of the group: that of one seed or one command. `data.seed` is one, as it holds the data's order.
OF_A_FIT = ("seed_everything", "experiment", "resume", "check", "plan", "plan_memory", "ckpt_path", "allow_modules")
START = "# lightning.pytorch=="  # of what --print_config prints; the team's modules may print before it


def check_flags(arguments: list[str]) -> None:
    """Refuse flags that make no sense with several seeds.

    Args:
        arguments: The command line of ``fit`` without ``--seeds``.

    Raises:
        UserError: For the first such flag.
    """
    for flag in (word.partition("=")[0] for word in arguments):
        if flag in REFUSED or (flag.startswith("--") and flag.endswith(".help")):
            raise UserError(f"{flag}: it doesn't go together with --seeds; leave one of them out")
    if "-" in values_of(arguments, "--config", "-c"):
        raise UserError("--config: each seed reads the config again; with --seeds give a file instead of -")


def read_settings(printed: str) -> dict[str, Any]:
    """Return the whole config of a fit, as ``--print_config`` prints it.

    Raises:
        UserError: If the runs of such a fit can't be told apart, or keep nothing.
    """
    config = yaml.load(printed.partition(START)[2].partition("\n")[2], Loader=Loader)
    for name in ("resume", "check", "plan", "ckpt_path"):
        if config.get(name):
            raise UserError(f"{name}: it is set in a config; with --seeds leave it out")
    if (wanted := config.get("init_from")) and not any(
        path.is_file() or RunFolder(path).is_run() for path in (Path(wanted), ROOT / wanted)
    ):
        raise UserError(f"init_from: '{wanted}' may be another run for each seed; name a run's folder or a file")
    trainer = config["trainer"]
    if trainer.get("logger") is False or trainer.get("barebones") or trainer.get("fast_dev_run"):
        raise UserError("trainer: without a logger, with barebones or fast_dev_run no metrics are kept for --seeds")
    loggers = trainer.get("logger")
    for logger in loggers if isinstance(loggers, list) else [loggers]:
        if isinstance(logger, dict) and str(logger.get("class_path")).endswith("TensorBoardLogger"):
            raise UserError(
                "trainer.logger: a TensorBoardLogger names the run's folder, and so does --seeds; remove it"
            )
    if ((config.get("checkpoint") or {}).get("init_args") or {}).get("dirpath"):
        raise UserError("checkpoint.dirpath: it is one folder for all seeds; with --seeds leave it out")
    return config


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return what all fits of a group share of a config, as a JSON file holds it, secrets masked."""
    shared = mask({name: value for name, value in config.items() if name not in OF_A_FIT})
    return json.loads(json.dumps(shared, default=str), parse_constant=str)


def group_for(config: dict[str, Any]) -> SeedGroup:
    """Return the group of an experiment that has the settings of a config; a new one where none has.

    Args:
        config: The whole config of a fit.

    Raises:
        UserError: If the experiment's name is not valid, or the file of another group can't be read.
    """
    root = root_of(config["trainer"])
    check_experiment(root, config["experiment"])
    folder = root / config["experiment"]
    wanted = flat_config(settings_of(config))
    groups = {_number(path): SeedGroup(path) for path in folder.glob("seeds_*") if SeedGroup(path).file.is_file()}
    changes: dict[str, list[Any]] = {}
    for number in sorted(groups, reverse=True):
        there = differences([flat_config(groups[number].content().get("config") or {}), wanted])
        if not there:
            return groups[number]
        changes = changes or there
    numbers = [_number(path) for path in folder.glob("seeds_*")]
    group = SeedGroup(folder / f"seeds_{max(numbers, default=-1) + 1}")
    if changes:
        listed = [f"{key}: {as_text(then)} -> {as_text(now)}" for key, (then, now) in changes.items()]
        print(f"{group.name} is a new group: {groups[max(groups)].name} has other settings ({some(listed)}).")
    return group


def _number(group: Path) -> int:
    number = group.name.removeprefix("seeds_")
    return int(number) if number.isdecimal() else -1
