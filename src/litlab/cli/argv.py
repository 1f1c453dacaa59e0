"""Runs and base configs become flags: a command line goes in, one that the parser reads comes out.

``fit --resume mine`` is ``fit --config RUN/config.yaml --ckpt_path RUN/checkpoints/last.ckpt --resume RUN``, and
``test --run mine`` the same with the best checkpoint. A config that says ``base: other.yaml`` is read behind that file.
Nothing is written here, and nothing is remembered.
"""

import os
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs.find import choose_checkpoint, find_run, newest_resumable, owner_of
from litlab.runs.folder import ROOT, RunFolder, read_json
from litlab.util.yaml import read_mapping as read_yaml

CONFIG = ("--config", "-c")


def pin_run(argv: list[str]) -> list[str]:
    """Return a command line that names its run by the folder, as its other processes must not find another one.

    Args:
        argv: The verb and its flags. ``--resume`` and ``--run`` may say ``last``, ``auto``, an experiment or a run.

    Raises:
        UserError: If there is no such run.
    """
    verb, *flags = argv
    if verb == "fit":
        return [verb, *_pin_resume(flags)]
    name, rest = take_flag("--run", flags)
    if name is None:
        return argv
    return [verb, "--run", name if os.path.isfile(name) else str(find_run(name).path), *rest]


def _pin_resume(flags: list[str]) -> list[str]:
    name, rest = take_flag("--resume", flags)
    requeued = name is None and int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0
    if name not in (None, "auto"):
        return ["--resume", str(find_run(name).path), *rest]
    if name is None and not requeued:
        return flags

    root = Path(flag_value("--trainer.default_root_dir", rest) or ".") / ROOT
    run = newest_resumable(root, _find_experiment(rest))
    if run is None or (requeued and read_json(run.status).get("slurm_job_id") != os.environ.get("SLURM_JOB_ID")):
        return rest
    # The run has its own settings; of the command only a new end of the training counts, and whom it trusts.
    kept = [pair for pair in flags_of(rest) if pair[0].startswith(("--trainer.max_", "--allow_modules"))]
    return ["--resume", str(run.path), *chain.from_iterable(kept)]


def expand(argv: list[str]) -> list[str]:
    """Return a command line in which runs and bases are flags.

    Args:
        argv: The verb and its flags, as `pin_run` returns them.

    Raises:
        UserError: If a file is missing or can't be read.
    """
    verb, *flags = argv
    names_run = "--resume" if verb == "fit" else "--run"
    name, rest = take_flag(names_run, _with_bases(flags))
    if name is None:
        return [verb, *rest]
    path = Path(name)
    run = owner_of(path) if path.is_file() else RunFolder(path)
    if run is None:  # a checkpoint that is in no run
        return [verb, f"--config={_config_in(path)}", f"--ckpt_path={path}", "--run=", *rest]

    read_yaml(run.config)  # which says what is wrong with it
    if verb != "fit":
        which, rest = take_flag("--ckpt_path", rest)
        checkpoint = choose_checkpoint(run, name if path.is_file() else which)
    else:
        from litlab.checkpointing.io import newest_checkpoint

        checkpoint = newest_checkpoint(run.checkpoints)
        if checkpoint is None:
            raise UserError(f"{run.name}: there is no checkpoint to resume from in {run.checkpoints}; start a new run")
    return [verb, f"--config={run.config}", f"--ckpt_path={checkpoint}", f"{names_run}={run.path}", *rest]


def is_foreign(argv: list[str]) -> bool:
    """Return whether an expanded command line reads the config of a run or checkpoint, which may be somebody else's."""
    if has_flag(argv, "--resume", "--run"):
        return True
    return any(is_of_run(Path(value)) for flag, value in flags_of(argv) if flag in CONFIG)


def _config_in(file: Path) -> str:
    """Return the config that a checkpoint holds, as text that ``--config`` takes."""
    from litlab.checkpointing.io import load_checkpoint

    text = load_checkpoint(file, weights=False).get("config")
    if not isinstance(text, str):
        raise UserError(f"{file}: it is in no run folder and holds no config; give --config as well")
    return text


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
        if flag in CONFIG and (os.path.isfile(file) or file.endswith(".yaml")):
            expanded += [f"--config={base}" for base in find_bases(Path(file))]
        expanded.append(word)
    return expanded


def find_bases(file: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """Return the files that a config builds on, in the order in which they apply; one that several name comes once.

    Args:
        file: The config file.
        above: The files that build on it, resolved.

    Raises:
        UserError: If a file is missing, or they build on each other in a circle.
    """
    above = (*above, file.resolve())
    found: list[Path] = []
    for base in resolve_bases(read_yaml(file).get("base") or [], file):
        if base.resolve() in above:
            raise UserError(f"{file}: base: {base}: the configs build on each other in a circle; remove one of them")
        found += [*find_bases(base, above), base]
    return list(dict.fromkeys(found))


def resolve_bases(named: Any, file: Path) -> list[Path]:
    """Return the paths of the config files that a ``base`` names, relative to the file that it is in."""
    names = named if isinstance(named, list) else [named]
    return [Path(os.path.relpath(file.parent / str(name))) for name in names]


# Flags


def flags_of(argv: list[str]) -> list[tuple[str, str]]:
    """Return the flags of a command line with their values, of ``--a b`` and ``--a=b`` alike; "" for no value."""
    found: list[tuple[str, str]] = []
    for word, following in pairwise([*argv, "--"]):
        flag, equals, value = word.partition("=")
        if flag.startswith("--") or flag == "-c":
            after = "" if following.startswith("--") else following
            found.append((flag, value if equals else after))
    return found


def flag_value(name: str, argv: list[str]) -> str | None:
    """Return the value of a flag, the last one if it is given twice; None if it is not given."""
    return dict(flags_of(argv)).get(name)


def has_flag(argv: list[str], *names: str) -> bool:
    """Return whether one of some flags is given."""
    return any(flag in names for flag, _ in flags_of(argv))


def read_texts(argv: list[str]) -> Iterator[str]:
    """Yield what the flags of a command line say, of config files their text."""
    for flag, value in flags_of(argv):
        is_file = flag in CONFIG and os.path.isfile(value)
        yield Path(value).read_text(encoding="utf-8", errors="replace") if is_file else value


def take_flag(name: str, argv: list[str]) -> tuple[str | None, list[str]]:
    """Return the value of a flag, None if it is not given, and the command line without it."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(name, dest="value")
    taken, rest = parser.parse_known_args(argv)
    return taken.value, rest


def _find_experiment(flags: list[str]) -> str:
    """Return the name of the experiment, which a flag or a config file sets; the last of them counts."""
    name = "default"
    for flag, value in flags_of(_with_bases(flags)):
        if flag == "--experiment":
            name = value
        elif flag in CONFIG and os.path.isfile(value):
            name = str(read_yaml(Path(value)).get("experiment") or name)
    return name
