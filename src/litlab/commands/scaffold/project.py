"""Where the files of a team's project are."""

from pathlib import Path

from litlab.errors import UserError
from litlab.util.team import package, package_folder

CONFIGS = Path("configs")


def find_folders(command: str) -> tuple[Path, Path]:
    """Return the folders of the package and of its tests, relative to the project's root."""
    root = Path.cwd().resolve()
    source = package_folder().resolve()
    if not (root / CONFIGS).is_dir() or not source.is_relative_to(root):
        raise UserError(f"{command}: run it in the project's root, where {CONFIGS}/ and src/{package()}/ are")
    return source.relative_to(root), Path("tests") / package()
