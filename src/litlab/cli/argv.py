"""The command line is read once: runs and base configs become flags that the parser reads.

``fit --resume mine`` is
``fit --config RUN/config.yaml --ckpt_path RUN/checkpoints/last.ckpt --resume RUN``, and
``test --run mine`` the same with the best checkpoint. A config that says ``base: other.yaml`` is
read behind that file. Nothing is written here, and nothing is remembered.
"""

import os
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs.folder import ROOT, RunFolder, read_json
from litlab.util.yaml import read_mapping as read_yaml

CONFIG = ("--config", "-c")
# A config file could not be read before them
ONLY_FLAGS = ("resume", "run", "allow_modules", "data_changed")


@dataclass(frozen=True)
class CommandLine:
    """A command line of ``fit``, ``validate``, ``test`` or ``predict``.

    Attributes:
        verb: The command.
        pinned: The words of the command, with its run named by its folder: what starts the other
            processes of the run, which must not find another one.
        flags: What the parser reads.
        run: The run that is resumed or evaluated.
        is_auto: Whether it says ``--resume auto``: it does not know of a run that another process
            is starting.
        is_foreign: Whether the config is that of a run or checkpoint, which may be somebody else's.
    """

    verb: str
    pinned: list[str]
    flags: list[str]
    run: RunFolder | None = None
    is_auto: bool = False
    is_foreign: bool = False


def read_command_line(argv: list[str]) -> CommandLine:
    """Read a command line.

    Args:
        argv: The verb and its flags. ``--resume`` and ``--run`` may say ``last``, ``auto``, an
            experiment or a run.

    Raises:
        UserError: If there is no such run, or a file is missing or can't be read.
    """
    verb, *flags = argv
    key = "--resume" if verb == "fit" else "--run"
    name, rest = take_flag(key, flags)
    if verb == "fit":
        run, rest = _choose_resumed(name, rest)
    else:
        run = _find_evaluated(name)

    if name and run is None and verb != "fit":  # a checkpoint that is in no run
        own = [f"--config={_config_in(Path(name))}", f"--ckpt_path={name}", "--run="]
        return CommandLine(verb, argv, [*own, *_with_bases(rest)], is_foreign=True)
    expanded = _with_bases(rest)
    if run is None:
        is_foreign = any(
            is_of_run(Path(value)) for flag, value in flags_of(expanded) if flag in CONFIG
        )
        return CommandLine(
            verb, [verb, *rest], expanded, is_auto=name == "auto", is_foreign=is_foreign
        )

    read_yaml(run.config)  # which says what is wrong with it
    pinned = [verb, key, str(run.path), *rest]
    if verb == "fit":
        checkpoint = _checkpoint_to_resume(run)
    else:
        pinned[2] = str(name) if os.path.isfile(str(name)) else pinned[2]
        from litlab.runs.find import choose_checkpoint

        which, expanded = take_flag("--ckpt_path", expanded)
        checkpoint = choose_checkpoint(run, name if os.path.isfile(str(name)) else which)
    own = [f"--config={run.config}", f"--ckpt_path={checkpoint}", f"{key}={run.path}"]
    return CommandLine(
        verb, pinned, [*own, *expanded], run, is_auto=name == "auto", is_foreign=True
    )


def _find_evaluated(name: str | None) -> RunFolder | None:
    """Return the run that ``--run`` names; None for a checkpoint that is in no run."""
    if not name:
        return None
    from litlab.runs.find import find_run, owner_of

    return owner_of(Path(name)) if os.path.isfile(name) else find_run(name)


def _choose_resumed(name: str | None, flags: list[str]) -> tuple[RunFolder | None, list[str]]:
    """Return the run that a fit resumes, if any, and the flags that count in addition to its own
    settings.

    A job that SLURM has put back into the queue resumes its run by itself, as with
    ``--resume auto``.
    """
    is_requeued = name is None and int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0
    if name is None and not is_requeued:
        return None, flags

    from litlab.runs.find import find_run, newest_resumable

    if name not in (None, "auto"):
        return find_run(str(name)), flags
    root = Path(flag_value("--trainer.default_root_dir", flags) or ".") / ROOT
    run = newest_resumable(root, _find_experiment(flags), needs_job=is_requeued)
    return (None, flags) if run is None else (run, _drop_repeated(flags, run))


def _drop_repeated(flags: list[str], run: RunFolder) -> list[str]:
    """Return the flags that were not typed when the run was started: those are in its config
    already.

    The command that starts a run can so be the one that continues it, also where a flag appends to
    a list. Whatever else it says is compared with the run's settings, as with ``--resume last``.
    """
    origin = read_json(run.provenance)
    fits = [origin, *origin.get("continued", [])]
    before = [pair for fit in fits for pair in flags_of(fit.get("command", []))]
    newest = dict(before)
    fresh = []
    for flag, value in flags_of(flags):
        appends = flag.endswith("+") or flag in CONFIG
        is_repeated = newest.get(flag) == value or (appends and (flag, value) in before)
        if not is_repeated or flag.lstrip("-") in ONLY_FLAGS:
            fresh.append(f"{flag}={value}" if value else flag)
    return fresh


def _checkpoint_to_resume(run: RunFolder) -> Path:
    from litlab.checkpointing.io import newest_checkpoint

    checkpoint = newest_checkpoint(run.checkpoints)
    if checkpoint is None:
        raise UserError(
            f"{run.name}: there is no checkpoint to resume from in {run.checkpoints}; "
            "start a new run"
        )
    return checkpoint


def _config_in(file: Path) -> str:
    """Return the config that a checkpoint holds, as text that ``--config`` takes."""
    from litlab.checkpointing.io import load_checkpoint

    text = load_checkpoint(file, weights=False).get("config")
    if not isinstance(text, str):
        raise UserError(
            f"{file}: it is in no run folder and holds no config; give --config as well"
        )
    return text


def is_of_run(config: Path) -> bool:
    """Return whether a config is the one that a run has left in its folder."""
    siblings = ("status.json", "checkpoints")
    return config.name == "config.yaml" and any(
        os.path.lexists(config.parent / name) for name in siblings
    )


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
    """Return the files that a config builds on, in the order in which they apply; one that several
    name comes once.

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
            raise UserError(
                f"{file}: base: {base}: the configs build on each other in a circle; "
                "remove one of them"
            )
        found += [*find_bases(base, above), base]
    return list(dict.fromkeys(found))


def resolve_bases(named: Any, file: Path) -> list[Path]:
    """Return the paths of the config files that a ``base`` names, relative to the file that it is
    in.
    """
    names = named if isinstance(named, list) else [named]
    return [Path(os.path.relpath(file.parent / str(name))) for name in names]


# Flags


def flags_of(argv: list[str]) -> list[tuple[str, str]]:
    """Return the flags of a command line with their values, of ``--a b`` and ``--a=b`` alike; ""
    for no value.
    """
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
    """Return the name of the experiment, which a flag or a config file sets; the last of them
    counts.
    """
    name = "default"
    for flag, value in flags_of(_with_bases(flags)):
        if flag == "--experiment":
            name = value
        elif flag in CONFIG and os.path.isfile(value):
            name = str(read_yaml(Path(value)).get("experiment") or name)
    return name
