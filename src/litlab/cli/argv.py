"""Runs and base configs become flags: a command line goes in, one that the parser reads comes out.

``fit --resume mine`` is ``fit --config RUN/config.yaml --ckpt_path RUN/checkpoints/last.ckpt --resume RUN``, and
``test --run mine`` the same with the best checkpoint. A config that says ``base: other.yaml`` is read behind that file.
Nothing is written here, and nothing is remembered.
"""

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs.find import choose_checkpoint, find_run, newest_resumable, owner_of
from litlab.runs.folder import ROOT, RunFolder, read_json
from litlab.runs.settings import read_config
from litlab.util.text import nearest
from litlab.util.yaml import read_mapping as read_yaml

CONFIG = ("--config", "-c")
# An exported model computes on the CPU, in full precision, however its run was trained.
FOR_EXPORT = (
    "--trainer.accelerator=cpu", "--trainer.devices=1", "--trainer.num_nodes=1", "--trainer.strategy=auto",
    "--trainer.precision=32-true",
)  # fmt: skip


def pin_run(argv: list[str]) -> list[str]:
    """Return a command line that names its run by the folder, as its other processes must not find another one.

    Args:
        argv: The verb and its flags. ``--resume`` and ``--run`` may say ``last``, ``auto``, an experiment or a run.

    Raises:
        UserError: If there is no such run.
    """
    verb, *flags = argv
    if verb == "fit":
        run, rest = _run_to_resume(flags)
        return ["fit", *rest] if run is None else ["fit", "--resume", str(run.path), *rest]

    name, rest = take_flag("--run", flags)
    checkpoint = flag_value("--ckpt_path", rest)
    if name is None and checkpoint is not None and not has_flag(rest, *CONFIG):
        name, rest = take_flag("--ckpt_path", rest)  # a checkpoint alone
    if name is None or os.path.isfile(name) or is_export(Path(name)):
        return [verb, *rest] if name is None else [verb, "--run", name, *rest]
    return [verb, "--run", str(find_run(name).path), *rest]


def expand(argv: list[str]) -> list[str]:
    """Return a command line in which runs and bases are flags.

    Args:
        argv: The verb and its flags, as `pin_run` returns them.

    Raises:
        UserError: If a file is missing or can't be read.
    """
    verb, *flags = argv
    name, rest = take_flag("--resume" if verb == "fit" else "--run", flags)
    rest = _with_bases(rest)
    if name is None:
        return [verb, *rest]
    if verb == "fit":
        return [verb, *_resume_flags(RunFolder(Path(name))), *rest]
    which, rest = take_flag("--ckpt_path", rest)
    if is_export(Path(name)):
        return [verb, *_export_flags(Path(name), verb), *rest]
    if os.path.isfile(name):
        return [verb, *_checkpoint_flags(Path(name)), *rest]
    return [verb, *_run_flags(RunFolder(Path(name)), which), *rest]


def is_foreign(argv: list[str]) -> bool:
    """Return whether an expanded command line reads the config of a run or checkpoint, which may be somebody else's."""
    if has_flag(argv, "--resume", "--run"):
        return True
    return any(is_of_run(Path(value)) for flag, value in flags_of(argv) if flag in CONFIG and value)


def is_export(folder: Path) -> bool:
    """Return whether a folder holds an exported model. A run is never an export, whatever files are in it."""
    run = RunFolder(folder)
    return os.path.isfile(folder / "manifest.json") and not (run.is_run() or os.path.lexists(run.config))


# Runs


def _run_to_resume(flags: list[str]) -> tuple[RunFolder | None, list[str]]:
    """Return the run that a fit resumes, None for a new one, and the flags without what named it."""
    name, rest = take_flag("--resume", flags)
    requeued = name is None and int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0
    if name != "auto" and not requeued:
        if name is not None and has_flag(rest, "--ckpt_path", "--init_from"):
            raise UserError(
                "--resume: it continues from the run's last checkpoint; leave --ckpt_path and --init_from out"
            )
        return (None if name is None else find_run(name)), rest

    run = newest_resumable(_root(rest), _setting("experiment", rest) or "default")
    if run is not None and requeued:
        job = read_json(run.status).get("slurm_job_id")
        run = run if job == os.environ.get("SLURM_JOB_ID") else None
    if run is None:
        return None, rest
    # The run has its own settings; of the command only a new end of the training counts.
    kept = [word for flag, value in flags_of(rest) if flag.startswith("--trainer.max_") for word in (flag, value or "")]
    return run, kept


def _resume_flags(run: RunFolder) -> list[str]:
    read_config(run.config)  # refused unless it is a plain file
    from litlab.checkpointing.io import newest_checkpoint

    newest = newest_checkpoint(run.checkpoints)
    if newest is None:
        raise UserError(f"{run.name}: there is no checkpoint to resume from in {run.checkpoints}; start a new run")
    return [f"--config={run.config}", f"--ckpt_path={newest}", f"--resume={run.path}"]


def _run_flags(run: RunFolder, which: str | None) -> list[str]:
    read_config(run.config)
    path = choose_checkpoint(run, which)
    return [f"--config={run.config}", f"--ckpt_path={path}", f"--run={run.path}"]


def _checkpoint_flags(file: Path) -> list[str]:
    """Return the flags for a checkpoint alone: of the run that it is in, else with the config that it holds."""
    run = owner_of(file)
    if run is not None:
        return _run_flags(run, str(file))
    return [f"--config={_config_in(file)}", f"--ckpt_path={file}", "--run="]


def _export_flags(folder: Path, verb: str) -> list[str]:
    if verb == "validate":
        raise UserError(f"--run: {folder} is an exported model; use test or predict")
    return [f"--config={_config_in(folder / 'run.ckpt')}", f"--run={folder}", *FOR_EXPORT]


def _config_in(file: Path) -> str:
    """Return the config that a checkpoint holds, as text that ``--config`` takes."""
    import yaml

    from litlab.checkpointing.io import load_checkpoint

    text = load_checkpoint(file, weights=False).get("config")
    if not isinstance(text, str):
        raise UserError(f"{file}: it is in no run folder and holds no config; give --config as well")
    return json.dumps(yaml.safe_load(text))


def is_of_run(config: Path) -> bool:
    """Return whether a config is the one that a run has left in its folder."""
    siblings = ("status.json", "checkpoints")
    return config.name == "config.yaml" and any(os.path.lexists(config.parent / name) for name in siblings)


# Bases


def _with_bases(flags: list[str]) -> list[str]:
    """Return flags with the bases of each config file in front of it."""
    expanded: list[str] = []
    for word, following in pairwise([*flags, "--"]):
        flag, equals, value = word.partition("=")
        file = value if equals else following
        if flag in CONFIG and os.path.isfile(file):
            expanded += [f"--config={base}" for base in find_bases(Path(file))]
        expanded.append(word)
    return expanded


def find_bases(file: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """Return the files that a config builds on, in the order in which they apply; one that several name comes once.

    Args:
        file: The config file.
        above: The files that build on it, resolved.

    Raises:
        UserError: If a base is missing, or they build on each other in a circle.
    """
    named = read_yaml(file).get("base")
    if named is None:
        return []
    if is_of_run(file):
        raise UserError(f"{file}: base: the config of a run is complete; remove the base")
    above = (*above, file.resolve())
    found: list[Path] = []
    for base in resolve_bases(named, file):
        if base.resolve() in above:
            raise UserError(f"{file}: base: {base}: the configs build on each other in a circle; remove one of them")
        found += [path for path in (*find_bases(base, above), base) if path not in found]
    return found


def resolve_bases(named: Any, file: Path) -> list[Path]:
    """Return the paths of the config files that a ``base`` names, relative to the file that it is in.

    Raises:
        UserError: If one of them is no file.
    """
    paths: list[Path] = []
    for name in named if isinstance(named, list) else [named]:
        path = Path(os.path.relpath(file.parent / str(name)))
        if not path.is_file():
            others = [os.path.relpath(other, file.parent) for other in file.parent.rglob("*.yaml")]
            raise UserError(f"{file}: base: {name}: no such file{nearest(str(name), others, '; give its path')}")
        paths.append(path)
    return paths


# Flags


def flags_of(argv: list[str]) -> list[tuple[str, str | None]]:
    """Return the flags of a command line with their values, of ``--a b`` and ``--a=b`` alike; None for no value."""
    found: list[tuple[str, str | None]] = []
    for word, following in pairwise([*argv, "--"]):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") or flag == "-c":
            after = None if following.startswith("--") else following
            found.append((flag, value if equals else after))
    return found


def flag_value(name: str, argv: list[str]) -> str | None:
    """Return the value of a flag, the last one if it is given twice; None if it is not given."""
    values = [value for flag, value in flags_of(argv) if flag == name]
    return values[-1] if values else None


def has_flag(argv: list[str], *names: str) -> bool:
    """Return whether one of some flags is given."""
    return any(flag in names for flag, _ in flags_of(argv))


def take_flag(name: str, argv: list[str]) -> tuple[str | None, list[str]]:
    """Return the value of a flag, None if it is not given, and the command line without it."""
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == name:
            next(words, None)
        elif not word.startswith(f"{name}="):
            rest.append(word)
    return flag_value(name, argv), rest


def _root(flags: list[str]) -> Path:
    return Path(flag_value("--trainer.default_root_dir", flags) or ".") / ROOT


def _setting(name: str, flags: list[str]) -> str | None:
    """Return a setting of the first level as flags, else as the last config file that has it, says."""
    given = flag_value(f"--{name}", flags)
    if given is not None:
        return given
    files = [Path(value) for flag, value in flags_of(flags) if flag in CONFIG and value and os.path.isfile(value)]
    chain = [path for file in files for path in (*find_bases(file), file)]
    values = [read_yaml(file).get(name) for file in chain]
    return next((str(value) for value in reversed(values) if value is not None), None)
