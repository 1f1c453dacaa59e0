"""What the team's distribution needs: by the pyproject.toml of its sources, else by the installed metadata."""

import tomllib
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from litlab.util.team import package, package_folder

if TYPE_CHECKING:
    from packaging.requirements import Requirement


@dataclass(frozen=True)
class Declared:
    """What a distribution declares.

    Attributes:
        source: Where that is written: pyproject.toml, or the installed distribution.
        installable: What ``pip install`` takes, with ``{}`` where extras go.
        python: The versions of Python, such as ``>=3.11``; empty for any.
        requirements: What it always needs on this machine.
        extras: What it needs for each of its extras.
    """

    source: str
    installable: str
    python: str
    requirements: "list[Requirement]"
    extras: "dict[str, list[Requirement]]"

    def pip(self, extra: str = "") -> str:
        """Return the command that installs it, or it with an extra."""
        return f"pip install {self.installable.format(f'[{extra}]' if extra else '')}"

    def takes_python(self, version: str) -> bool:
        """Return whether it can be installed into a Python."""
        from packaging.specifiers import SpecifierSet

        return SpecifierSet(self.python).contains(version, prereleases=True)


def declared() -> Declared:
    """Return what the team's distribution declares.

    The pyproject.toml of a checkout counts: the installed metadata stays as it was when a newer one is pulled.

    Raises:
        PackageNotFoundError: If there is none, and no installed distribution holds the team's package.
    """
    for folder in package_folder().resolve().parents[:2]:  # of src/PACKAGE/ or of PACKAGE/
        file = folder / "pyproject.toml"
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}) if file.is_file() else {}
        if "dependencies" in project:
            return _by_sources(project)
    return _by_metadata(metadata.distribution(_distribution()))


def _by_sources(project: dict[str, Any]) -> Declared:
    extras = {extra: _parsed(texts) for extra, texts in project.get("optional-dependencies", {}).items()}
    return Declared(
        "pyproject.toml",
        "-e '.{}'",
        project.get("requires-python", ""),
        [one for one in _parsed(project["dependencies"]) if _applies(one, "")],
        _flat(project["name"], extras),
    )


def _by_metadata(found: metadata.Distribution) -> Declared:
    name, every = found.metadata["Name"], _parsed(found.requires or [])
    extras = {
        extra: [one for one in every if _applies(one, extra) and not _applies(one, "")]
        for extra in found.metadata.get_all("Provides-Extra") or []
    }
    return Declared(
        f"{name} {found.version}",
        f"'{name}{{}}'",
        "".join(found.metadata.get_all("Requires-Python") or []),
        [one for one in every if _applies(one, "")],
        _flat(name, extras),
    )


def _parsed(texts: list[str]) -> "list[Requirement]":
    from packaging.requirements import Requirement

    return [Requirement(text) for text in texts]


def _applies(one: "Requirement", extra: str) -> bool:
    return one.marker is None or one.marker.evaluate({"extra": extra})


def _flat(name: str, extras: "dict[str, list[Requirement]]") -> "dict[str, list[Requirement]]":
    """Fill in the extras that others name as ``project[export,serve]``."""

    def flat(extra: str) -> "list[Requirement]":
        found = []
        for one in extras.get(extra, []):
            found += [part for own in sorted(one.extras) for part in flat(own)] if one.name == name else [one]
        return found

    return {extra: flat(extra) for extra in extras}


def _distribution() -> str:
    """Return the name of the distribution that holds the team's package; it is usually the same."""
    try:
        return metadata.distribution(package()).name
    except metadata.PackageNotFoundError:
        return metadata.packages_distributions().get(package(), [package()])[0]
