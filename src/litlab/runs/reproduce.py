"""``python -m PACKAGE reproduce``: repeat a run from the same code and settings."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs.compare import read_config
from litlab.runs.find import RUN_HELP, find_run
from litlab.runs.folder import ROOT, RunFolder, read_json
from litlab.runs.git import GitError, WorkTree, git, work_tree
from litlab.runs.provenance import versions
from litlab.util import team
from litlab.util.options import Options, answer

PLACES = ("path", "file", "folder", "root", "dir")  # how settings end that say where the data is: `data_dir`
DESCRIPTION = """\
Repeat a run in a new run folder: with its config.yaml, on the commit and the uncommitted changes that
it ran with. If code, data or a file is missing, one line says what to do; packages whose versions
differ are listed. --print shows the commands instead.

  %(prog)s mine/version_3
  %(prog)s lightning_logs/mine --print
"""


def main(arguments: list[str]) -> int:
    """Run the command ``reproduce`` and return its exit code: 0, or 2 after one line on what is wrong."""
    return answer(_reproduce, arguments)


def _reproduce(arguments: list[str]) -> int:
    options = Options("reproduce", DESCRIPTION)
    options.add_argument("run", metavar="RUN", help=RUN_HELP)
    options.add_argument("--print", action="store_true", help="print the commands, and run nothing")
    options.add_argument("--root", metavar="DIR", type=Path, default=ROOT, help="where the runs are (%(default)s)")
    chosen = options.parse_args(arguments)

    run = find_run(chosen.run, chosen.root)
    made = read_json(run.provenance)
    if not made:
        raise UserError(f"{run.name} has no {run.provenance.name}, so it is not known what it was made from.")
    command = fit_command(run, made)
    steps = steps_to_code(run, made, work_tree())
    missing = missing_files(read_config(run.config), made)
    notes = different_versions(made)
    if str(Path.cwd()) != made.get("directory", str(Path.cwd())):
        notes.append(f"it was run in {made['directory']}; relative paths start here now.")

    if not chosen.print:
        if steps:
            raise UserError(f"the code here is not what {run.name} was made from; {' && '.join(steps)} and try again.")
        if missing:
            raise UserError(f"{run.name} can't be reproduced: {missing[0]}")
        for line in notes:
            print(f"note: {line}")
        print(shlex.join(["python", *command]), flush=True)
        os.execv(sys.executable, [sys.executable, *command])  # signals and the exit code are the fit's own
    for line in [*missing, *notes]:
        print(f"# {line}")
    print("\n".join([*steps, shlex.join(["python", *command])]))
    return 0


def fit_command(run: RunFolder, made: dict[str, Any]) -> list[str]:
    """Return the arguments of Python: the recorded command with the run's resolved config for all that it set.

    Raises:
        UserError: If the run has no config, wasn't made by ``fit``.
    """
    command = made.get("command") or []
    ours = team.command("fit")
    if command[:4] != ours:
        raise UserError(f"{run.name} was not made by `{shlex.join(ours)}` but by `{shlex.join(command)}`.")
    if not run.config.is_file():
        raise UserError(f"{run.name} has no {run.config.name}, so its settings are not known.")
    path = run.config.relative_to(Path.cwd()) if run.config.is_relative_to(Path.cwd()) else run.config
    return [*ours[1:], "--config", str(path)]


def steps_to_code(run: RunFolder, made: dict[str, Any], code: WorkTree) -> list[str]:
    """Return the commands that bring the work tree to the code of the run; none if it has it.

    Args:
        run: The run.
        made: Its provenance.
        code: The work tree as it is.

    Raises:
        UserError: If no commands do.
    """
    commit = made.get("commit")
    if commit is None:
        why = made.get("why_no_commit", "it was not under version control")
        raise UserError(f"{run.name} can't be reproduced: the commit of its code is not known ({why}).")
    if code.root is None:
        raise UserError(f"{run.name} can't be reproduced here: {code.problem}.")
    changes = made.get("uncommitted") or {}
    for session in made.get("continued") or []:
        later = session.get("commit"), (session.get("uncommitted") or {}).get("sha256")
        if later != (commit, changes.get("sha256")):
            raise UserError(
                f"{run.name} can't be reproduced: it was started on the code of {commit[:7]}, and continued on other "
                "code."
            )
    if (commit, changes.get("sha256", "")) == (code.commit, code.digest):
        return []
    try:
        git("cat-file", "-e", f"{commit}^{{commit}}", at=code.root)
    except GitError as error:
        raise UserError(
            f"{run.name} can't be reproduced: its commit {commit} is not in {code.root}; fetch it with git."
        ) from error
    if not changes.get("complete", True):
        raise UserError(
            f"{run.name} can't be reproduced: its code had uncommitted changes that {run.path / changes['file']} holds "
            "only in part (secrets, binary or large files are left out)."
        )
    at = ["git"] if code.root == Path.cwd() else ["git", "-C", str(code.root)]
    steps = [[*at, "stash", "--include-untracked"]] if code.dirty else []
    if code.commit != commit:
        steps.append([*at, "checkout", commit])
    if changes:
        steps.append([*at, "apply", str((run.path / changes["file"]).absolute())])
    return [shlex.join(step) for step in steps]


def missing_files(config: dict[str, Any], made: dict[str, Any]) -> list[str]:
    """Return what the run read and is missing: data, and checkpoints to start from. A line each.

    Args:
        config: The run's resolved config.
        made: Its provenance; data that was generated then is generated again.
    """
    named = {name: config.get(name) for name in ("ckpt_path", "init_from")}
    settings = (config.get("data") or {}).get("init_args") or {}
    generated = (made.get("data") or {}).get("generated", False)
    for name, value in settings.items():
        if not generated and name.rpartition("_")[2] in PLACES and "cache" not in name:  # a cache is made again
            named[f"data.{name}"] = value
    return [
        f"{key}: {value} is missing."
        for key, value in named.items()
        if isinstance(value, str) and value and not Path(value).exists()
    ]


def different_versions(made: dict[str, Any]) -> list[str]:
    """Return the packages that were not the same then. A line each."""
    then, here = made.get("versions") or {}, versions()
    return [
        f"{name} is {here.get(name, 'not installed')} here, the run used {version}."
        for name, version in then.items()
        if here.get(name) != version
    ]
