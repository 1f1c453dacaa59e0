"""What a renaming of the team's package changes, and changing it: all of it or nothing."""

import importlib.util
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from litlab.commands.scaffold.columns import in_columns
from litlab.commands.scaffold.mentions import Mentions
from litlab.commands.scaffold.tree import Project
from litlab.errors import UserError
from litlab.runs.provenance import git

UPSTREAM = (Path("src/litlab"), Path("tests/litlab"))  # these never mention it
LARGEST = 16 * 2**20  # bytes of a file that is looked into


@dataclass
class Plan:
    """What a renaming changes.

    Args:
        new: The name.
        texts: The new content of files, by their paths before the renaming.
        moves: Folders, with what they are called then.
        counts: Mentions that were replaced, by file.
        left: What may be mentions and was not replaced.
    """

    new: str
    texts: dict[Path, str] = field(default_factory=dict)
    moves: list[tuple[Path, Path]] = field(default_factory=list)
    counts: Counter[Path] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)


def planned(project: Project, new: str) -> Plan:
    """Find what is to be changed.

    Args:
        project: Where the package is.
        new: Its new name.
    """
    plan = Plan(new)
    folders = [folder for folder in (project.source, project.tests) if folder.is_dir()]
    plan.moves = [(folder, folder.with_name(new)) for folder in folders]
    parts = {path.stem for folder in (project.source, project.tests) for path in folder.glob("[!_.]*")}
    mentions = Mentions([project.package], new, parts)
    for file in map(Path, git("ls-files", "-z", at=Path.cwd()).split("\0")[:-1]):
        if any(file.is_relative_to(folder) for folder in UPSTREAM) or (text := _text(file)) is None:
            continue
        changed, count = mentions.replaced(text)
        if file.suffix == ".md" and count:
            changed = in_columns(text, changed)
        plan.left += [f"{place(plan, file)}:{number}: {line}" for number, line in mentions.left(changed)]
        if changed != text:
            plan.texts[file], plan.counts[file] = changed, count
    return plan


def _text(file: Path) -> str | None:
    """Return what a file holds; None where that is no text."""
    if file.is_symlink() or not file.is_file() or file.stat().st_size > LARGEST:
        return None
    content = file.read_bytes()
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def carry_out(plan: Plan) -> None:
    """Change the files; if one of them can't be changed, none is.

    Raises:
        UserError: If one can't be changed.
    """
    moved: list[tuple[Path, Path]] = []
    python = [file for file in plan.texts if file.suffix == ".py"]
    is_tidy = _ruff("check", "--select", "I", *python) and _ruff("format", "--check", *python)
    try:
        for file, text in plan.texts.items():
            file.write_bytes(text.encode())
        for folder, name in plan.moves:
            folder.rename(name)
            moved.append((folder, name))
        if is_tidy:  # names are sorted and lines broken by their lengths
            new = [place(plan, file) for file in python]
            _ruff("check", "--select", "I", "--fix", *new)
            _ruff("format", *new)
    except BaseException as error:
        for folder, name in moved:
            name.rename(folder)
        git("restore", "--worktree", "--", ".", at=Path.cwd())
        if isinstance(error, OSError):
            raise UserError(f"rename: {error.filename}: {error.strerror}; nothing was changed") from error
        raise


def place(plan: Plan, file: Path) -> Path:
    """Return where a file is once the plan is carried out."""
    folders = ((folder, name) for folder, name in plan.moves if file.is_relative_to(folder))
    return next((name / file.relative_to(folder) for folder, name in folders), file)


def _ruff(*arguments: object) -> bool:
    """Run ruff, where it is installed; return whether it found nothing."""
    if importlib.util.find_spec("ruff") is None:
        return False
    words = [sys.executable, "-m", "ruff", *map(str, arguments), "--quiet", "--no-cache"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
