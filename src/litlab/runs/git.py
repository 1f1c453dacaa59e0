"""What git knows about the code that runs."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from litlab.runs.masking import mask_diff
from litlab.util.team import package_folder

SOURCES = (".py", ".yaml", ".yml", ".toml")  # untracked files that belong to the code: their content is kept
MOST_BYTES = 4_000_000  # of a diff


@dataclass(frozen=True)
class WorkTree:
    """The code as it is on the disk.

    Attributes:
        root: The work tree's folder; None if the code is in no repository.
        commit: The commit that is checked out; None if there is none.
        problem: Why there is no commit, in one line; empty if there is.
        diff: What differs from the commit, as ``git apply`` takes it; new source files included, secrets masked.
        digest: SHA-256 of the difference before it was masked or cut; empty if there is none.
        complete: Whether the diff tells everything: nothing was masked, cut or is binary.
        untracked: Other files that are not in git, by name.
    """

    root: Path | None = None
    commit: str | None = None
    problem: str = ""
    diff: str = ""
    digest: str = ""
    complete: bool = True
    untracked: tuple[str, ...] = ()

    @property
    def dirty(self) -> bool:
        """Whether the code differs from the commit."""
        return bool(self.digest)


def work_tree(package: Path | None = None) -> WorkTree:
    """Looks at the repository that the running code comes from.

    Args:
        package: A folder of the code. Left out, the team's package: where the command was typed says nothing about it.
    """
    package = (package or package_folder()).resolve()
    try:
        root = Path(git("rev-parse", "--show-toplevel", at=package).strip())
        if not git("ls-files", "--", ".", at=package):
            return WorkTree(problem=f"{package} is not under version control")
        commit = git("rev-parse", "--verify", "HEAD", at=root).strip()
        names = git("ls-files", "--others", "--exclude-standard", "-z", at=root).split("\0")[:-1]
        sources = [name for name in names if name.endswith(SOURCES)]
        whole = _diff(root, sources)
    except GitError as error:
        return WorkTree(problem=str(error))
    masked = mask_diff(whole)
    kept = masked.encode(errors="surrogateescape")[:MOST_BYTES].decode(errors="surrogateescape")
    return WorkTree(
        root=root,
        commit=commit,
        diff=kept,
        digest=hashlib.sha256(whole.encode(errors="surrogateescape")).hexdigest() if whole else "",
        complete=kept == whole and "\nBinary files " not in whole,
        untracked=tuple(name for name in names if name not in sources),
    )


class GitError(Exception):
    """What git refused, in one line."""


def git(*arguments: str, at: Path, index: Path | None = None) -> str:
    """Runs git.

    Args:
        arguments: Of git.
        at: The folder to run it in.
        index: An index file to use in place of the repository's own.

    Raises:
        GitError: If it can't be run or fails.
    """
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    try:
        done = subprocess.run(["git", *arguments], cwd=at, env=environment, capture_output=True, check=False)
    except OSError as error:
        raise GitError(f"git can't be run: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(lines[0].removeprefix("fatal: ") if lines else f"git {arguments[0]} failed")
    return done.stdout.decode(errors="surrogateescape")


def _diff(root: Path, new: list[str]) -> str:
    """The difference to HEAD, new source files included, without touching the repository's own index."""
    # All that the user may have set otherwise: the same changes must give the same text later.
    form = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
        "--full-index", "--no-renames", "--unified=3", "--diff-algorithm=myers")  # fmt: skip
    if not new:
        return git("diff", *form, "HEAD", at=root)
    own = Path(git("rev-parse", "--git-path", "index", at=root).strip())
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        if (root / own).is_file():
            shutil.copy2(root / own, index)  # with its time: by it git knows which files it has to look into
        for start in range(0, len(new), 500):  # a command line is not endless
            git("add", "--intent-to-add", "--", *new[start : start + 500], at=root, index=index)
        return git("diff", *form, "HEAD", at=root, index=index)
