"""The team's package: whose experiments this process runs.

`litlab.cli.main` says it once, before anything else; whatever needs the name, as the class registry
or a command that is to be repeated, asks here.
"""

import importlib.util
import shlex
from pathlib import Path

_package = ""


def use_package(name: str) -> None:
    """Say which package holds the experiments, by its import name."""
    global _package
    _package = name


def package() -> str:
    """Return the import name of the team's package."""
    if not _package:
        raise RuntimeError(
            "run the package as python -m PACKAGE, or call litlab.util.team.use_package first"
        )
    return _package


def package_folder() -> Path:
    """Return the folder of the team's package."""
    spec = importlib.util.find_spec(package())
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{package()} is not a package")
    return Path(spec.submodule_search_locations[0])


def team_folders() -> dict[str, Path]:
    """Return the folders of the team's classes, by import name: that of its package, and `examples`
    beside it, unless they were deleted.
    """
    folder = package_folder()
    examples = folder.with_name("examples")
    is_there = (examples / "__init__.py").is_file()
    return {package(): folder} | ({"examples": examples} if is_there else {})


def build_command(*arguments: str) -> list[str]:
    """Return the words of a command of the team's package: ``python -m PACKAGE`` and arguments."""
    return ["python", "-m", package(), *arguments]


def typed(*arguments: str) -> str:
    """Return a command of the team's package as it is typed into a shell."""
    return shlex.join(build_command(*arguments))


def is_own(module: str) -> bool:
    """Return whether a module, by its dotted name, belongs to litlab, the team's package or the
    examples.
    """
    return module.partition(".")[0] in ("litlab", *team_folders())
