"""Which package may import which, read from the sources.

litlab knows no experiment; inside it each layer imports the ones below it, and nothing imports in a circle. The team's
package uses what litlab's subpackages export, and nothing else.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

from tests.conftest import PACKAGE, ROOT

LAYERS = (
    {"errors", "types", "util"},
    {"metrics", "nn", "optim", "parallel"},
    {"callbacks", "data", "tasks"},
    {"artifact", "checkpointing", "runs"},
    {"cli"},
    {"commands", "testing"},
)


CALLBACK_PARTS = ("litlab.callbacks.evaluation", "litlab.callbacks.reporting")  # for callbacks of the team, too


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(file): file for package in ("litlab", PACKAGE) for file in (ROOT / "src" / package).rglob("*.py")}


def imported(name: str, in_functions: bool = True) -> Iterator[tuple[str, str]]:
    """Modules of the two packages that a module imports, wherever it does, and what it takes of each."""
    pending: list[ast.AST] = [ast.parse(MODULES[name].read_text())]
    while pending:
        node = pending.pop()
        if in_functions or not isinstance(node, ast.FunctionDef):
            pending += ast.iter_child_nodes(node)
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


def test_slow_libraries_are_imported_where_they_are_used():
    """Not when a command starts: each takes a good part of a second."""
    slow = {"matplotlib", "optuna", "PIL", "plotly", "scipy", "sklearn", "tensorboard", "tokenizers", "torchvision"}
    wrong = []
    # These are imported where they are used.
    late = {"litlab.data.images.decode", "litlab.data.tables.baselines", "litlab.data.tables.leaks"}
    for name in MODULES.keys() - {name for name in MODULES if name.startswith("litlab.commands.sweep")} - late:
        for node in ast.parse(MODULES[name].read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{name} imports {one}" for one in names if one.partition(".")[0] in slow]
    assert wrong == []


def test_nothing_is_imported_in_a_circle():
    modules = {name: {target for target, _ in imported(name, in_functions=False)} for name in MODULES}
    list(TopologicalSorter(modules).static_order())


def test_the_teams_package_uses_what_is_public():
    wrong = []
    for name in MODULES:
        for target, what in imported(name) if is_team(name) else ():
            if is_team(target) or target in ("litlab.errors", "litlab.types", *CALLBACK_PARTS):
                continue
            package, _, module = target.rpartition(".")  # `from litlab.cli import main`: a function, and a module
            exported = [getattr(import_module(one), "__all__", ()) for one in (target, package) if one]
            if not any(one in names for one, names in zip((what, module), exported, strict=False)):
                wrong.append(f"{name} imports {what} of {target}")
    assert wrong == []


def test_commands_do_not_import_each_other():
    """So that a folder of litlab/commands can be deleted, as test_removal.py does."""
    commands = [name for name in MODULES if name.startswith("litlab.commands.")]
    wrong = []
    for name in commands:
        for target, _ in imported(name):
            if target in commands and target.split(".")[2] != name.split(".")[2]:
                wrong.append(f"{name} imports {target}")
    assert wrong == []
