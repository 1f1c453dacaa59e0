"""Python and the installed packages, next to what the project declares."""

import importlib.util
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from litlab.commands.doctor.declared import Declared, declared
from litlab.commands.doctor.line import EXTRAS, FAILED, NOTE, OK, PYTHON, WARNING, Line
from litlab.util.text import some

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PURPOSES = {  # of litlab's own extras
    "dev": "tests, linting and notebooks",
    "docs": "docs/ as a website",
    "export": "exports as ONNX",
    "postgresql": "sweeps on several machines",
    "serve": "the command serve",
    "stream": "data in shards",
    "torchao": "optimizers with 8-bit state",
}


def packages() -> Iterator[Line]:
    """Look at Python, at the packages that the project needs, and at its extras."""
    version, place = platform.python_version(), f"in {sys.prefix}"
    facts = {"version": version, "executable": sys.executable}
    if importlib.util.find_spec("packaging") is None:  # which compares versions, and comes with all others
        yield Line(PYTHON, "Python", NOTE, f"{version} {place}", facts=facts)
        yield Line(PYTHON, "packages", FAILED, "hardly any are installed: packaging is missing", install())
        return
    try:
        project = declared()
    except metadata.PackageNotFoundError as error:
        yield Line(PYTHON, "Python", OK, f"{version} {place}", facts=facts)
        what = f"what the project needs is not known: there is no pyproject.toml, and {error}"
        yield Line(PYTHON, "packages", NOTE, what)
        return
    if project.takes_python(version):
        yield Line(PYTHON, "Python", OK, f"{version} {place}", facts=facts)
    else:
        what = f"{version} {place}; {project.source} needs {project.python}"
        remedy = f"make a new environment with Python {project.python}, then: {project.pip()}"
        yield Line(PYTHON, "Python", FAILED, what, remedy, facts)
    yield from _needed(project)
    for extra, requirements in project.extras.items():
        yield _extra(project, extra, requirements)


def install() -> str:
    """Return what to do where packages are missing."""
    made = Path(".venv/bin/activate")
    other = made.is_file() and Path(sys.prefix).resolve() != made.parents[1].resolve()
    return f"source {made}" if other else "pip install -e ."


def _needed(project: Declared) -> Iterator[Line]:
    """Look at what the project needs, at what that needs, and so on."""
    needed = {str(one): (one, project.source) for one in project.requirements}
    queue, wrong = list(needed.values()), 0
    for one, by in queue:  # it grows
        if why := unmet(one):
            wrong += 1
            status = FAILED if by == project.source else WARNING
            what = f"{why}, and {by} needs {one.name}{one.specifier}"
            facts = {"requirement": f"{one.name}{one.specifier}", "needed_by": by}
            yield Line(PYTHON, one.name, status, what, f"pip install '{facts['requirement']}'", facts)
        for inner in _requirements_of(one):
            if str(inner) not in needed:
                needed[str(inner)] = inner, one.name
                queue.append(needed[str(inner)])
    if not wrong:
        own, every = len(project.requirements), len({one.name.lower() for one, _ in queue})
        what = f"{own} that {project.source} needs, and {every - own} that these need: all there, in versions that fit"
        yield Line(PYTHON, "packages", OK, what, facts={"needed": own, "all": every})


def unmet(requirement: "Requirement") -> str:
    """Return why the installed packages do not meet a requirement; empty where they do."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return "not installed"
    return "" if requirement.specifier.contains(version, prereleases=True) else f"{version} is installed"


def _requirements_of(one: "Requirement") -> "list[Requirement]":
    """Return what an installed package needs here, with the extras that are asked for."""
    from packaging.requirements import Requirement

    try:
        found = [Requirement(text) for text in metadata.requires(one.name) or []]
    except metadata.PackageNotFoundError:
        return []
    extras = ["", *one.extras]
    return [part for part in found if not part.marker or any(part.marker.evaluate({"extra": e}) for e in extras)]


def _extra(project: Declared, extra: str, requirements: "list[Requirement]") -> Line:
    """Look at an extra: one that is not there is no fault, but one in a version that does not fit is."""
    use = f"{PURPOSES[extra]}: " if extra in PURPOSES else ""
    wrong = {one.name: why for one in requirements if (why := unmet(one))}
    missing = [name for name, why in wrong.items() if why == "not installed"]
    misfit = [f"{name} {why}" for name, why in wrong.items() if name not in missing]
    installed = {one.name: metadata.version(one.name) for one in requirements if one.name not in missing}
    facts = {"installed": not wrong, "versions": installed}
    if misfit:
        needs = some([f"{one.name}{one.specifier}" for one in requirements if one.name in wrong])
        return Line(EXTRAS, extra, WARNING, f"{use}{some(misfit)}; it needs {needs}", project.pip(extra), facts)
    if missing:
        less = f"not installed ({some(missing)})" if installed else "not installed"
        return Line(EXTRAS, extra, NOTE, f"{use}{less}", project.pip(extra), facts)
    return Line(EXTRAS, extra, OK, f"{use}installed", facts=facts)
