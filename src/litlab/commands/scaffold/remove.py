"""``python -m PACKAGE remove``: delete the files of an experiment, but none that something else uses."""

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from litlab.commands.scaffold.new import package_text
from litlab.commands.scaffold.tree import CONFIGS, Project, here
from litlab.errors import UserError
from litlab.runs.folder import ROOT
from litlab.runs.provenance import GitError, git
from litlab.util.options import Options, answer
from litlab.util.text import nearest, some

DESCRIPTION = """\
Delete an experiment: its config and sweep file, the modules of its name (NAME.py, and NAME_*.py that it uses), and
the tests of these alone. They are listed first. If anything else uses one of them, nothing is deleted, and a line says
what. Runs in lightning_logs/ stay.

  %(prog)s mine
  %(prog)s mine --yes      without asking
"""


@dataclass(frozen=True)
class Plan:
    """What is to be deleted.

    Args:
        files: The files.
        left: Modules that the experiment uses, and that stay.
        mentions: Pages that name its config, and Python files with a word that may mean it.
    """

    files: list[Path]
    left: list[Path]
    mentions: list[Path]


def main(arguments: list[str]) -> int:
    """Run the command ``remove`` and return its exit code: 0, or 2 after one line on what is wrong."""
    return answer(_remove, arguments)


def _remove(arguments: list[str]) -> int:
    options = Options("remove", DESCRIPTION)
    options.add_argument("name", metavar="NAME", help="the experiment: configs/NAME.yaml")
    options.add_argument("--yes", action="store_true", help="delete without asking")
    chosen = options.parse_args(arguments)
    plan = planned(chosen.name, here("remove"))
    lost = not_in_git(plan.files)
    width = max(len(str(path)) for path in plan.files)
    count = f"{len(plan.files)} files" if len(plan.files) > 1 else "1 file"
    print("To be deleted:")
    print("\n".join(f"  {path!s:{width}}  {lost.get(path, '')}".rstrip() for path in plan.files))
    if plan.left:
        print(f"These stay, though it uses them: {', '.join(map(str, plan.left))}")
    if plan.mentions:
        print(f"These seem to mention it: {', '.join(map(str, plan.mentions))}")
    print(f"Runs in {ROOT}/ stay; those of {chosen.name} can't be resumed or tested without these files.")
    if not chosen.yes:
        if not sys.stdin.isatty():
            raise UserError("remove: nothing was deleted, as there is no terminal to ask on; add --yes")
        if not agreed(f"Delete {count}{f', {len(lost)} of them for good' if lost else ''}? [y/N] "):
            print("Nothing was deleted.")
            return 0
    delete(plan.files)
    print(f"Deleted {count}.")
    return 0


def planned(name: str, project: Project) -> Plan:
    """Find out which files an experiment consists of.

    Args:
        name: Its name.
        project: Where it is.

    Raises:
        UserError: If there is none of that name, or something else uses one of its files.
    """
    known = [path.stem for path in CONFIGS.glob("*.yaml")]
    if name not in known:
        raise UserError(f"remove: there is no experiment '{name}' in {CONFIGS}/{nearest(Path(name).stem, known)}")
    config = CONFIGS / f"{name}.yaml"
    used = used_modules(config, project)
    named = {config, CONFIGS / f"sweeps/{name}.yaml"}
    gone = {path for path in project.configs if path in named}
    gone |= {path for path in project.modules if path.stem == name}
    gone |= {path for path in used if path.stem.startswith((f"{name}_", f"_{name}_"))}
    gone |= set(project.tests.rglob(f"test_{name}.py"))
    uses = {path: project.uses(path) for path in project.files}
    mentions = {path: project.mentions(path) for path in project.files}
    users = [config]
    while users:
        users = [path for path in uses if path not in gone and uses[path] & gone]
        of_it_alone = {path for path in users if is_test_of(path, gone, uses[path] | mentions[path], project)}
        if users and not of_it_alone:
            one = min(uses[users[0]] & gone)
            raise UserError(
                f"remove: {one} is used by {some([str(path) for path in users if one in uses[path]])}; change that "
                "first, or delete by hand, as docs/experiments.md, 'Removing an experiment', says"
            )
        gone |= of_it_alone
    gone |= {init for folder in {path.parent for path in gone} if (init := emptied(folder, gone)) is not None}
    pages = [*sorted(Path().glob("*.md")), *sorted(Path("docs").rglob("*.md"))]
    found = [page for page in pages if str(config) in page.read_text(encoding="utf-8", errors="replace")]
    found += [path for path in mentions if path not in gone and mentions[path] & gone]
    return Plan(sorted(gone), sorted(used - gone), found)


def used_modules(config: Path, project: Project) -> set[Path]:
    """Return the modules of the package that an experiment uses, those that they import included."""
    found: set[Path] = set()
    new = {config}
    while new:
        uses = {path for file in new for path in project.uses(file)}
        new = {path for path in uses if path.is_relative_to(project.source)} - found
        found |= new
    return found


def is_test_of(path: Path, gone: set[Path], uses: set[Path], project: Project) -> bool:
    """Return whether a file of the tests uses modules that are to be deleted, and no other module or experiment."""
    modules = {used for used in uses if used.is_relative_to(project.source)}
    configs = {used for used in uses if used.parent == CONFIGS}
    return path.is_relative_to(project.tests) and bool(modules) and modules | configs <= gone


def emptied(folder: Path, gone: set[Path]) -> Path | None:
    """Return the ``__init__.py`` of a folder if nothing else is left there, and ``new`` has written it."""
    init = folder / "__init__.py"
    rest = {path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"} - gone
    return init if rest == {init} and init.read_text(encoding="utf-8") == package_text(folder) else None


def not_in_git(files: list[Path]) -> dict[Path, str]:
    """Return the files that git can't bring back as they are, each with the reason."""
    names = [str(path) for path in files]
    try:
        new = git("ls-files", "--others", "-z", "--", *names, at=Path.cwd())
        changed = git("diff", "--name-only", "--relative", "-z", "HEAD", "--", *names, at=Path.cwd())
    except GitError:  # no git, no repository or no commit
        return dict.fromkeys(files, "not in git")
    found = dict.fromkeys(map(Path, changed.split("\0")[:-1]), "changes are not committed")
    return found | dict.fromkeys(map(Path, new.split("\0")[:-1]), "not in git")


def agreed(question: str) -> bool:
    """Ask on the terminal; return whether the answer is yes."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        print()
        return False


def delete(files: list[Path]) -> None:
    """Delete files, all or none, and folders of which only the ``__init__.py`` was left.

    Raises:
        UserError: If one can't be deleted.
    """
    moved: list[tuple[Path, Path]] = []
    try:
        aside = Path(tempfile.mkdtemp(prefix=".removed-", dir="."))
        try:
            for path in files:
                place = aside / str(len(moved))
                path.rename(place)
                moved.append((path, place))
        except BaseException:
            for path, place in moved:
                place.rename(path)
            aside.rmdir()
            raise
    except OSError as error:
        raise UserError(f"remove: {error.filename}: {error.strerror}; nothing was deleted") from error
    shutil.rmtree(aside)
    for folder in {path.parent for path in files if path.name == "__init__.py"}:
        shutil.rmtree(folder)  # compiled modules are all that is left in it
