"""``python -m PACKAGE rename``: give the team's package another name, wherever its files mention it."""

import importlib.util
import keyword
import re
import sys
from collections import Counter
from pathlib import Path

from litlab.commands.scaffold.renaming import Plan, carry_out, place, planned
from litlab.commands.scaffold.tree import Project, here
from litlab.errors import UserError
from litlab.runs.provenance import GitError, git
from litlab.util.options import Options, answer
from litlab.util.text import print_table, some

DESCRIPTION = """\
Rename the package of the experiments: its folder, that of its tests, and what configs, pages, tests and other files in
git say of it. Runs and checkpoints from before name its classes as they were, and can't be read under the new name.
Everything must be committed, so that one commit holds the renaming, and git can undo it.

  %(prog)s acme
"""
MOST = 20  # lines that are shown
INSTALLED = Path(".venv/installed")  # of the Makefile: it installs where pyproject.toml is newer


def main(arguments: list[str]) -> int:
    """Run the command ``rename`` and return its exit code: 0, or 2 after one line on what is wrong."""
    return answer(_rename, arguments)


def _rename(arguments: list[str]) -> int:
    options = Options("rename", DESCRIPTION)
    options.add_argument("name", metavar="NAME", help="the new name, as it is imported")
    new = options.parse_args(arguments).name
    project = here("rename")
    old = project.package
    if new == old:
        raise UserError(f"rename: {new} is its name already; choose another one")
    check_package(new, project)
    check_committed()
    plan = planned(project, new)
    carry_out(plan)
    report(plan, old)
    return 0


def check_package(name: str, project: Project) -> None:
    """Check that the package can have a name, and nothing else has it.

    Args:
        name: What was typed.
        project: Where the package is.

    Raises:
        UserError: If not.
    """
    if not re.fullmatch(r"[A-Za-z](?:\w*[A-Za-z0-9])?", name, re.ASCII):
        raise UserError(
            f"rename: {name!r} can't be the name of a package; use letters, digits and _, begin with a letter, and "
            "don't end with _"
        )
    if keyword.iskeyword(name):
        raise UserError(f"rename: {name} is a keyword of Python; choose another name")
    if name.lower() != name and name.lower() == project.package.lower():
        raise UserError(f"rename: {name} differs from {project.package} in its case alone; choose another name")
    of_litlab = Path("tests/litlab/team") / name  # a package that its tests import
    for folder in (Path(name), project.source.with_name(name), project.tests.with_name(name), of_litlab):
        for path in (folder, folder.with_suffix(".py")):
            if path.exists():
                raise UserError(f"rename: there is {path} already; choose another name, or move that away")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise UserError(f"rename: {name} is a module of Python or of an installed package; choose another name")


def check_committed() -> None:
    """Check that git has all of the project as it is.

    Raises:
        UserError: If there is no repository, or something is not committed.
    """
    try:
        states = git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", ".", at=Path.cwd())
        git("rev-parse", "--verify", "HEAD", at=Path.cwd())
    except GitError as error:
        raise UserError(
            f"rename: git could not undo it here ({error}); git init && git add --all && git commit first"
        ) from error
    if changed := [state[3:] for state in states.split("\0")[:-1]]:
        what = f"there are uncommitted changes ({some(changed)})"
        raise UserError(f"rename: {what}; commit them first, or git stash --include-untracked")


def report(plan: Plan, old: str) -> None:
    """Print what was changed and what to do next."""
    from rich.table import Table

    files: Counter[str] = Counter()
    mentions: Counter[str] = Counter()
    for file, count in plan.counts.items():
        path = place(plan, file)
        where = "/".join(path.parts[: 2 if path.parts[0] in ("src", "tests") else 1])
        files[where] += 1
        mentions[where] += count
    table = Table("where", "files", "mentions")
    for where in sorted(files, key=lambda where: (-mentions[where], where)):
        table.add_row(where, str(files[where]), str(mentions[where]))
    table.add_row("all", str(files.total()), str(mentions.total()))
    print_table(table)
    for folder, name in plan.moves:
        print(f"{folder} is {name} now.")
    if plan.left:
        print("These lines may mean the package, too; they are as they were:")
        print("\n".join(f"  {line}" for line in plan.left[:MOST]))
        print(f"  and {len(plan.left) - MOST} more\n" if len(plan.left) > MOST else "", end="")
    print(f"Next:\n  git add --all && git commit --message 'Rename {old} to {plan.new}'")
    print(f"  pip uninstall --yes {old} && pip install --no-deps --editable .", end="")
    print(f" && touch {INSTALLED}    # or make installs everything again" if INSTALLED.exists() else "")
    print(f"  python -m {plan.new} schema    # for editors")
    if len(plan.new) > len(old):
        print("  make lint    # shows lines that have become too long")
    print("  make test")
