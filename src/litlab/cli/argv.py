"""The command line is read once: runs and base configs become flags that the parser reads.

``fit --resume mine`` is
``fit --config RUN/config.yaml --ckpt_path RUN/checkpoints/last.ckpt --resume RUN``, and
``test --run mine`` the same with the best checkpoint. A config that says ``base: other.yaml`` is
read after that file. Nothing is written here, and nothing is remembered.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs.find import choose_checkpoint, find_resumable, find_run
from litlab.runs.folder import ROOT, RunFolder, find_owner, read_record
from litlab.util.yaml import fill_variables, read_mapping

CONFIG = ("--config", "-c")  # both are LightningCLI's
# What a config file can't set: these say which config is read and how far it is trusted, or belong
# to one start of a command and not to the experiment.
ONLY_FLAGS = ("resume", "run", "seeds", "folds", "allow_modules", "data_changed")


class Flags(list[str]):
    """The words of a command line after its verb."""

    def list_pairs(self) -> list[tuple[str, str]]:
        """Return the flags with their values, of ``--a b`` and ``--a=b`` alike; "" for no value."""
        found: list[tuple[str, str]] = []
        # A pair is a word and the next one, perhaps its value; "--" stands behind the last word
        for word, following in pairwise([*self, "--"]):
            flag, equals, value = word.partition("=")
            if flag.startswith("--") or flag == "-c":
                # In `--check --seeds 0,1` the word after --check is a flag, and no value of it.
                after = "" if following.startswith("--") else following
                found.append((flag, value if equals else after))
        return found

    def find(self, name: str) -> str | None:
        """Return the value of a flag, the last one of several; None if it is not given."""
        return dict(self.list_pairs()).get(name)

    def has(self, *names: str) -> bool:
        """Return whether one of some flags is given."""
        return any(flag in names for flag, _ in self.list_pairs())

    def drop(self, *names: str) -> "Flags":
        """Return the flags without some of them and their values."""
        rest = Flags()
        # Now a pair is a word and the one before, whose value it may be.
        for before, word in pairwise(["", *self]):
            is_value = before in names and not word.startswith("--")
            if not is_value and word.partition("=")[0] not in names:
                rest.append(word)
        return rest

    def read_texts(self) -> Iterator[str]:
        """Yield the value of each flag; of a config file its text."""
        for flag, value in self.list_pairs():
            is_file = is_config_file(flag, value)
            # Only names are looked for: that a file is no UTF-8 is said by what parses it.
            yield Path(value).read_text(encoding="utf-8", errors="replace") if is_file else value


def is_config_file(flag: str, value: str) -> bool:
    """Return whether a flag names a config file; a config may also be text."""
    return flag in CONFIG and os.path.isfile(value)


@dataclass(frozen=True)
class CommandLine:
    """A command line of ``fit``, ``validate``, ``test`` or ``predict``.

    Attributes:
        verb: The command.
        pinned: The words of the command, with its run named by its folder. The other processes of
            the run are started with them, and must find the same run.
        flags: What the parser reads.
        run: The run that is resumed or evaluated.
        is_auto: Whether it says ``--resume auto``. Another process that says so may be starting the
            same run right now.
        is_foreign: Whether the config is that of a run or checkpoint, which may be somebody else's.
    """

    verb: str
    pinned: list[str]
    flags: Flags
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
    verb, flags = argv[0], Flags(argv[1:])
    key = "--resume" if verb == "fit" else "--run"
    name, rest = flags.find(key), flags.drop(key)
    # `--run=` is allowed: below, the flags of a checkpoint that is in no run have it
    if name == "" and f"{key}=" not in flags:
        raise UserError(f"{key}: it has no value; give one, such as {key} last")

    # The run that it is about
    if verb == "fit":
        run, rest = _choose_resumed(name, rest)
    else:
        run = _find_evaluated(name)

    # A checkpoint that is in no run: it holds its config
    expanded, is_auto = _add_bases(rest), name == "auto"
    if name and run is None and verb != "fit":
        run_flags = [f"--config={_load_config(Path(name))}", f"--ckpt_path={name}", "--run="]
        return CommandLine(verb, argv, Flags([*run_flags, *expanded]), is_foreign=True)

    # No run at all. A config that lies in a run's folder is that of a run, also if it was typed
    if run is None:
        is_foreign = any(
            is_of_run(Path(value)) for flag, value in expanded.list_pairs() if flag in CONFIG
        )
        return CommandLine(verb, [verb, *rest], expanded, is_auto=is_auto, is_foreign=is_foreign)

    # A run: its config and checkpoint, then what was typed, as later flags win
    read_mapping(run.config)  # if it is damaged, this says so in one line
    # Other processes of this command read the pinned words again, and must find the same run: by
    # then `last` may be another one
    pinned = [verb, key, str(run.path), *rest]
    if verb == "fit":
        checkpoint = _find_checkpoint(run)
    else:
        # --run may name a file: then that checkpoint is meant, and not the run's best
        file = name if os.path.isfile(str(name)) else None
        pinned[2] = file or pinned[2]
        checkpoint = choose_checkpoint(run, file or expanded.find("--ckpt_path"))
        expanded = expanded.drop("--ckpt_path")
    run_flags = [f"--config={run.config}", f"--ckpt_path={checkpoint}", f"{key}={run.path}"]
    return CommandLine(verb, pinned, Flags([*run_flags, *expanded]), run, is_auto, is_foreign=True)


def _find_evaluated(name: str | None) -> RunFolder | None:
    """Return the run that ``--run`` names; None for a checkpoint that is in no run."""
    if not name:
        return None
    return find_owner(Path(name)) if os.path.isfile(name) else find_run(name)


def _choose_resumed(name: str | None, flags: Flags) -> tuple[RunFolder | None, Flags]:
    """Return the run that a fit resumes, if any, and the flags that count in addition to its own
    settings.

    A job that SLURM has put back into the queue resumes its run by itself, as with
    ``--resume auto``.
    """
    # SLURM (sbatch --requeue) counts how often it has done so.
    is_requeued = name is None and int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0
    if name not in (None, "auto"):
        return find_run(str(name)), flags
    if name is None and not is_requeued:
        return None, flags
    # --resume auto, or a job that was put back: the run is looked for, and there may be none
    root = Path(_find_setting(flags, "trainer.default_root_dir") or ".") / ROOT
    experiment = _find_setting(flags, "experiment") or "default"
    run = find_resumable(root, experiment, needs_job=is_requeued)
    return (None, flags) if run is None else (run, _drop_repeated(flags, run))


def _drop_repeated(flags: Flags, run: RunFolder) -> Flags:
    """Return the flags without those that were typed when the run was started: its config has them
    already.

    So one command can start a run and continue it, even if a flag appends to a list. Whatever else
    it says is compared with the run's settings, as with ``--resume last``.
    """
    # What was typed when it started, and each time when it went on
    origin = read_record(run.provenance)
    fits = [origin, *origin.get("continued", [])]
    before = [pair for fit in fits for pair in Flags(fit.get("command", [])).list_pairs()]
    newest = dict(before)

    # A flag that appends counts once for each of its values, any other by its last one.
    fresh = Flags()
    for flag, value in flags.list_pairs():
        appends = flag.endswith("+") or flag in CONFIG
        is_repeated = newest.get(flag) == value or (appends and (flag, value) in before)
        if not is_repeated or flag.lstrip("-") in ONLY_FLAGS:
            fresh.append(f"{flag}={value}" if value else flag)
    return fresh


def _find_checkpoint(run: RunFolder) -> Path:
    from litlab.checkpointing.io import find_newest_checkpoint

    # Not always last.ckpt: where that is damaged, the newest whole one is used.
    checkpoint = find_newest_checkpoint(run.checkpoints)
    if checkpoint is None:
        raise UserError(
            f"{run.name}: there is no checkpoint to resume from in {run.checkpoints}; "
            "start a new run"
        )
    return checkpoint


def _load_config(file: Path) -> str:
    """Return the config that a checkpoint holds, as text that ``--config`` takes."""
    from litlab.checkpointing.io import load_checkpoint

    # `RunRecord` has put it there.
    text = load_checkpoint(file, weights=False).get("config")
    if not isinstance(text, str):
        raise UserError(
            f"{file}: it is in no run folder and holds no config; give --config as well"
        )
    return text


def is_of_run(config: Path) -> bool:
    """Return whether a config is the one that a run has left in its folder."""
    # A run that is starting or was cut short may have one of them alone.
    siblings = ("status.json", "checkpoints")
    return config.name == "config.yaml" and any(
        os.path.lexists(config.parent / name) for name in siblings
    )


# Bases


def _add_bases(flags: Flags) -> Flags:
    """Return flags with the bases of each config file in front of it."""
    expanded = Flags()
    for word, following in pairwise([*flags, "--"]):
        flag, equals, value = word.partition("=")
        file = value if equals else following
        # A config may be text, too. A name in .yaml is a file, and is missed where it is not there.
        if flag in CONFIG and (os.path.isfile(file) or file.endswith(".yaml")):
            # In front of the file, which is then free to change what they say.
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
    for base in resolve_bases(_read_config(file).get("base") or [], file):
        # Links and `../` are resolved, or a circle might not be recognised.
        if base.resolve() in above:
            raise UserError(
                f"{file}: base: {base}: the configs build on each other in a circle; "
                "remove one of them"
            )
        found += [*find_bases(base, above), base]
    # Without repetition: of two mentions the first one stays.
    return list(dict.fromkeys(found))


def _read_config(file: Path) -> dict[str, Any]:
    """Return a config as the parser will read it: that of a run, perhaps somebody else's, without
    this machine's environment.
    """
    return read_mapping(file, fill=not is_of_run(file))


def resolve_bases(named: Any, file: Path) -> list[Path]:
    """Return the paths of the config files that a ``base`` names, relative to the file that it is
    in.
    """
    names = named if isinstance(named, list) else [named]
    # From the working directory, as they would be typed: messages name them.
    return [Path(os.path.relpath(file.parent / str(name))) for name in names]


def _find_setting(flags: Flags, key: str) -> str | None:
    """Return a setting that tells where runs are, before anything is parsed: the last flag or
    config file that sets it counts.
    """
    section, _, name = key.rpartition(".")
    value = None
    for flag, text in _add_bases(flags).list_pairs():
        if flag == f"--{key}":
            value = fill_variables(text)
        elif is_config_file(flag, text):
            config = _read_config(Path(text))
            # Both `trainer: {default_root_dir: runs}` and `trainer.default_root_dir: runs` are YAML
            inside = config.get(section) if section else config
            found = config.get(key) or (inside.get(name) if isinstance(inside, dict) else None)
            value = str(found) if found else value
    return value
