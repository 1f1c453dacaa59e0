"""Which module of litlab imports which, read from the sources: each layer those below it, nothing
in a circle.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import litlab
from tests.processes import Python

SOURCES = Path(litlab.__file__).parents[1]
LAYERS = (
    {"errors", "types", "util"},
    {"metrics", "nn", "optim"},
    {"callbacks", "data", "parallel", "tasks"},
    {"checkpointing", "runs"},
    {"cli"},
    {"artifact"},
    {"commands", "testing"},
)
# A fit of the smallest experiment, and how many modules of litlab it may import. The process is
# forked from one that has imported some.
FIT = """
import sys
for name in [name for name in sys.modules if name.startswith("litlab")]:
    del sys.modules[name]
from lightning.pytorch.strategies import StrategyRegistry
StrategyRegistry.remove("fsdp2")
from litlab.cli import main
try:
    main("project")
finally:
    print("modules", *sorted(name for name in sys.modules if name.startswith("litlab")))
"""
MOST_MODULES = 61
UNUSED = ("commands", "data", "nn", "optim", "tasks", "callbacks.averaging", "callbacks.lr_finder")
SLOW = "matplotlib optuna PIL plotly scipy sklearn tensorboard tokenizers torchvision".split()
LATE = ("litlab.data.images.decode", "litlab.data.tables.baselines", "litlab.commands.sweep")
# What a run is made of does not know how a model is divided; data and tasks know no other
APART = {
    "callbacks": ["parallel"],
    "checkpointing": ["parallel"],
    "data": ["parallel", "tasks"],
    "tasks": ["parallel", "data"],
}


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    name_of(file): ast.parse(file.read_text()) for file in (SOURCES / "litlab").rglob("*.py")
}


def list_imports(name: str, at_start: bool = False) -> Iterator[str]:
    """Yield the dotted names of all that a module imports, and of what it takes of these.

    Args:
        name: The module.
        at_start: Whether only that counts which is imported with the module.
    """
    pending: list[ast.AST] = [MODULES[name]]
    while pending:
        node = pending.pop()
        is_later = isinstance(node, ast.FunctionDef) or "TYPE_CHECKING" in ast.unparse(
            getattr(node, "test", [])
        )
        if not (at_start and is_later):
            pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def list_modules(name: str, at_start: bool = False) -> set[str]:
    """Return the modules of litlab that a module imports."""
    names = list(list_imports(name, at_start))
    return {part for full in names for part in (full, full.rpartition(".")[0]) if part in MODULES}


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else "util"


def layer_of(name: str) -> int:
    return [room_of(name) in rooms for rooms in LAYERS].index(True)


def test_layers_import_downwards_and_some_rooms_do_not_know_each_other():
    """The team's package is none of them: litlab knows no experiment."""
    for name in MODULES:
        others, apart = list_modules(name), APART.get(room_of(name), [])
        above = [other for other in others if layer_of(other) > layer_of(name)]
        forbidden = [other for other in others if room_of(other) in apart]
        teams = [full for full in list_imports(name) if full.partition(".")[0] == "project"]
        assert above + forbidden + teams == [], name


def test_slow_libraries_are_imported_where_they_are_used():
    """Not when a command starts: each takes a good part of a second."""
    for name in MODULES:
        if not name.startswith(LATE):
            roots = {full.partition(".")[0] for full in list_imports(name, at_start=True)}
            assert roots.isdisjoint(SLOW), name


def test_nothing_is_imported_in_a_circle():
    """Inside functions neither."""
    list(TopologicalSorter({name: list_modules(name) for name in MODULES}).static_order())


def test_a_fit_imports_what_it_uses(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(FIT)
    line = f"fit --config configs/linear.yaml --trainer.default_root_dir {tmp_path}"
    done = Python(script, *line.split(), "--trainer.max_steps=1", cwd=SOURCES.parent)
    printed, errors = done.communicate()
    assert done.returncode == 0, errors
    modules = printed.splitlines()[-1].split()[1:]
    assert not [name for name in modules if name.startswith(tuple(f"litlab.{u}" for u in UNUSED))]
    assert len(modules) <= MOST_MODULES, modules


def test_commands_do_not_import_each_other():
    """So that a folder of litlab/commands can be deleted, as commands/test_removal.py does."""
    start = "litlab.commands."
    for name in MODULES:
        if name.startswith(start):
            others = [other for other in list_modules(name) if other.startswith(start)]
            assert {other.split(".")[2] for other in others} <= {name.split(".")[2]}
