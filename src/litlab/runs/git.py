"""The repository that the running code is in: its commit, and what differs from it."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from litlab.util import team

# New files that belong to the code: their content is kept
SOURCES = ("*.py", "*.yaml", "*.yml", "*.toml")
# Whatever the user has set otherwise, the same changes must give the same text later.
DIFF = (
    "diff --no-ext-diff --no-textconv --no-color --no-renames --src-prefix=a/ --dst-prefix=b/ "
    "--full-index HEAD"
)


class GitError(Exception):
    """What git refused, in one line."""


def read_work_tree(package: Path | None = None) -> tuple[str | None, str]:
    """Describe the repository that the running code is in.

    Args:
        package: A folder of the code. Left out, the team's package, wherever the command was typed.

    Returns:
        The commit that is checked out, None where the code is in no repository; and what differs
        from it, new source files included, as ``git apply`` takes it.
    """
    package = package or team.package_folder()
    try:
        # A package below an environment's site-packages may lie in a repository that ignores it
        if not run_git("ls-files", "--", ".", at=package):
            return None, ""
        # The whole repository: configs and litlab lie beside the package
        root = Path(run_git("rev-parse", "--show-toplevel", at=package).strip())
        return run_git("rev-parse", "--verify", "HEAD", at=root).strip(), _read_diff(root)
    except GitError:  # no git, no repository, or no commit yet
        return None, ""


def run_git(*arguments: str, at: Path, **environment: str) -> str:
    """Run git in a folder, and return what it prints.

    Args:
        arguments: Arguments of git.
        at: The folder.
        environment: Further environment variables.

    Raises:
        GitError: If it can't be run or fails.
    """
    # In English, whatever the user's language; and without writing, as `git diff` refreshes the
    # index otherwise and may meet the lock of another git
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **environment}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=at, env=environment, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        message = (
            getattr(error, "stderr", b"").decode(errors="replace") or f"git can't be run: {error}"
        )
        raise GitError(message.splitlines()[0].removeprefix("fatal: ")) from error
    return done.stdout.decode(errors="surrogateescape")


def _read_diff(root: Path) -> str:
    """Return the difference to HEAD, new source files included, without touching the repository's
    own index.
    """
    # -z: names end with a zero byte, as they may hold any other
    sources = run_git(
        "ls-files", "--others", "--exclude-standard", "-z", "--", *SOURCES, at=root
    ).split("\0")[:-1]
    with tempfile.TemporaryDirectory() as folder:
        # With its time, by which git knows which files it has to look into.
        index = shutil.copy2(
            root / run_git("rev-parse", "--git-path", "index", at=root).strip(), folder
        )
        run_git("add", "--intent-to-add", "--", *sources, at=root, GIT_INDEX_FILE=index)
        return run_git(*DIFF.split(), at=root, GIT_INDEX_FILE=index)
