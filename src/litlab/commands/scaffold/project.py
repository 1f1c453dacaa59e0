"""Where the files of a team's project are."""

from dataclasses import dataclass
from pathlib import Path

from litlab.errors import UserError
from litlab.util.team import package, package_folder

CONFIGS = Path("configs")


@dataclass(frozen=True)
class Project:
    """A project whose root is the working directory; all paths are relative to it.

    Args:
        package: Import name of the team's package.
        source: The package's folder.
        tests: The folder of its tests.
    """

    package: str
    source: Path
    tests: Path


def find_project(command: str) -> Project:
    """Return the project of the working directory.

    Args:
        command: Which command asks, for the message.

    Raises:
        UserError: If the working directory is not the project's root.
    """
    root = Path.cwd().resolve()
    source = package_folder().resolve()
    if not (root / CONFIGS).is_dir() or not source.is_relative_to(root):
        raise UserError(f"{command}: run it in the project's root, where {CONFIGS}/ and src/{package()}/ are")
    return Project(package(), source.relative_to(root), Path("tests") / package())
