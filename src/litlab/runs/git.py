"""What git knows about the code that runs: its commit, and how it differs from it."""

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
# Whatever the user has set otherwise, the same changes must give the same text later.
FORM = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
    "--full-index", "--no-renames", "--unified=3", "--diff-algorithm=myers")  # fmt: skip


@dataclass(frozen=True)
class WorkTree:
    """The code as it is on the disk.

    Attributes:
        root: The work tree's folder; None if the code is in no repository.
        commit: The commit that is checked out; None if there is none.
        problem: Why there is no commit, in one line; empty if there is one.
        diff: What differs from the commit, as ``git apply`` takes it; new source files included, secrets masked.
        digest: SHA-256 of the diff before it was masked or cut; empty if there is no difference.
        complete: Whether the diff has everything: nothing was masked, cut or is binary.
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
    """Describe the repository that the running code is in.

    Args:
        package: A folder of the code. Left out, the team's package, wherever the command was typed.
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
    kept = mask_diff(whole).encode(errors="surrogateescape")[:MOST_BYTES].decode(errors="surrogateescape")
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


def git(*arguments: str, at: Path, **environment: str) -> str:
    """Run git.

    Args:
        arguments: Arguments of git.
        at: The folder to run it in.
        environment: Further environment variables.

    Raises:
        GitError: If it can't be run or fails.
    """
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **environment}
    try:
        done = subprocess.run(["git", *arguments], cwd=at, env=environment, capture_output=True, check=False)
    except OSError as error:
        raise GitError(f"git can't be run: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(lines[0].removeprefix("fatal: ") if lines else f"git {arguments[0]} failed")
    return done.stdout.decode(errors="surrogateescape")


def _diff(root: Path, new: list[str]) -> str:
    """Return the difference to HEAD, new source files included, without touching the repository's own index."""
    if not new:
        return git("diff", *FORM, "HEAD", at=root)
    own = root / git("rev-parse", "--git-path", "index", at=root).strip()
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        if own.is_file():
            shutil.copy2(own, index)  # with its time, by which git knows which files it has to look into
        for start in range(0, len(new), 500):  # a command line has a maximum length
            git("add", "--intent-to-add", "--", *new[start : start + 500], at=root, GIT_INDEX_FILE=str(index))
        return git("diff", *FORM, "HEAD", at=root, GIT_INDEX_FILE=str(index))
