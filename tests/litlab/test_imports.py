"""Which package may import which, read from the sources.

litlab knows no experiment; inside it each layer imports the ones below it, and nothing imports in a circle. The team's
package uses what litlab's subpackages export, and nothing else.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

from litlab.cli.command import LIGHT, SEEDS
from litlab.util.renamed import RenamedWarning
from tests.conftest import PACKAGE, ROOT

LAYERS = (
    {"errors", "types", "util"},
    {"metrics", "nn", "optim", "parallel"},
    {"callbacks", "data", "tasks"},
    {"artifact", "checkpointing", "planning", "preflight", "runs"},
    {"cli"},
    {"bench", "doctor", "editor", "export", "report", "scaffold", "seeds", "serve", "sweep", "testing"},
)
FACE = Path(__file__).parent / "public_face.txt"


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(file): file for package in ("litlab", PACKAGE) for file in (ROOT / "src" / package).rglob("*.py")}


def imported(name: str) -> Iterator[tuple[str, str]]:
    """Modules of the two packages that a module imports, wherever it does, and what it takes of each."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            names = [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        else:
            continue
        for module, what in names:
            if f"{module}.{what}" in MODULES:
                yield f"{module}.{what}", ""
            elif module in MODULES:
                yield module, what


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def is_team(name: str) -> bool:
    return name.partition(".")[0] == PACKAGE


def layer(name: str) -> int:
    return next(number for number, rooms in enumerate(LAYERS) if room(name) in rooms)


def test_every_subpackage_has_its_layer():
    assert {room(name) for name in MODULES if name.startswith("litlab.")} == set().union(*LAYERS)


def test_the_machinery_knows_no_experiment_and_its_layers_import_downwards():
    wrong = []
    for name in MODULES:
        for target, _ in imported(name) if not is_team(name) else ():
            if is_team(target) or (room(target) and layer(target) > layer(name)):
                wrong.append(f"{name} imports {target}")
    assert wrong == []


def test_the_verbs_are_imported_by_name():
    """What `litlab.cli.command` imports in a way that `imported` does not see: the one import from a layer above."""
    assert {*LIGHT.values(), SEEDS} <= MODULES.keys()
    above = {room(name) for name in (*LIGHT.values(), SEEDS) if layer(name) > layer("litlab.cli")}
    assert above == LAYERS[-1] - {"testing"}
    text = " ".join((ROOT / "docs/architecture.md").read_text().split())
    named = re.search(r"`cli` imports ([^()]*?) by name", text)
    assert named
    assert set(re.findall(r"`(\w+)`", named[1])) == above


def test_slow_libraries_are_imported_where_they_are_used():
    """Not when a command starts: each takes a good part of a second."""
    slow = {"matplotlib", "optuna", "PIL", "plotly", "scipy", "sklearn", "tensorboard", "tokenizers", "torchvision"}
    wrong = []
    for name in MODULES.keys() - {name for name in MODULES if room(name) == "sweep"}:
        for node in ast.parse(MODULES[name].read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{name} imports {one}" for one in names if one.partition(".")[0] in slow]
    assert wrong == []


def test_nothing_is_imported_in_a_circle():
    """Neither modules nor subpackages; a package's own __init__ stands for what it exports."""
    modules = {name: {target for target, _ in imported(name)} for name in MODULES}
    list(TopologicalSorter(modules).static_order())
    rooms: dict[str, set[str]] = {}
    for name, targets in modules.items():
        if name.startswith("litlab."):
            rooms.setdefault(room(name), set()).update(room(target) for target in targets if room(target) != room(name))
    list(TopologicalSorter(rooms).static_order())


def test_the_picture_in_the_docs_is_that_of_the_code():
    found = set()
    for name in MODULES:
        for target, _ in imported(name):
            ends = [PACKAGE if is_team(end) else room(end) for end in (name, target)]
            if ends[0] != ends[1] and ends[0] and ends[1] not in ("", "errors", "types", "util") and ends[0] != "util":
                found.add(" --> ".join(ends))
    picture = set(re.findall(r"^  (\w+ --> \w+)$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE))
    unused = {edge for edge in picture - found if edge.startswith(f"{PACKAGE} ")}  # a team may need less
    assert sorted(found) == sorted(picture - unused)


def test_the_teams_package_uses_what_is_public():
    wrong = []
    for name in MODULES:
        for target, what in imported(name) if is_team(name) else ():
            if not is_team(target) and target not in ("litlab.errors", "litlab.types"):
                public = getattr(import_module(target), "__all__", ())
                if MODULES[target].name != "__init__.py" or not (what in public or is_old_name(target, what)):
                    wrong.append(f"{name} imports {what} of {target}")
    assert wrong == []


def is_old_name(module: str, name: str) -> bool:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        getattr(import_module(module), name, None)
    return any(issubclass(one.category, RenamedWarning) for one in said)


def test_the_public_face_is_the_one_that_was_agreed_on():
    """A name that is gone or renamed breaks the teams' code: change the list only on purpose."""
    packages = sorted(
        name
        for name, file in MODULES.items()
        if (name.startswith("litlab") and file.name == "__init__.py") or name == "litlab.types"
    )
    found = [f"{package}.{name}" for package in packages for name in getattr(import_module(package), "__all__", ())]
    agreed = FACE.read_text().splitlines()
    new, gone = sorted(set(found) - set(agreed)), sorted(set(agreed) - set(found))
    assert (new, gone) == ([], []), f"in {FACE.name} add {new} and remove {gone}"
