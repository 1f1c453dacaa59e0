"""Which private names of libraries litlab uses, and why: a table that is compared with the sources.

A private name begins with one underscore. What litlab itself defines under that name does not
count, and neither does ``os._exit``, which Python documents.
"""

import ast
from pathlib import Path

import litlab

FOLDER = Path(litlab.__file__).parent
# File, name and reason
ALLOWED = """
    artifact/artifact.py      _inductor: where torch documents how AOTInductor's files are made
    callbacks/compile.py      _dynamo: exceptions, time and graph breaks of torch.compile
    callbacks/compile.py      _functorch: activation_memory_budget, which has no other switch
    callbacks/compile.py      _logging: TORCH_LOGS of a process that runs; documented so
    callbacks/memory.py       _dump_snapshot: documented so, and nothing else for memory_viz
    callbacks/memory.py       _record_memory_history: the same
    cli/parse_errors.py       _actions: the names of all flags; get_defaults leaves some out
    commands/export/graph.py  _int_mm: the operator's name, for which ONNX has another
    commands/plan/measure.py  _subclasses: FakeTensorMode, documented so
"""
# Lightning (2.6.6) has no public way; each function says what for
LOOPS = """
    _average_model _batches_that_stepped _broadcast_sigterm_tensor _can_stop_early _combined_loader
    _data_fetcher _should_check_val_fx _signal_connector
"""
# There is no public way; the file says what for
STRATEGY = """
    _apply _foreach_mul_ _foreach_norm _layer_sync _save_distributed_checkpoint _update_properties
"""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and len(name) > 1


def list_defined(tree: ast.AST) -> set[str]:
    """Names that a file gives something: functions, classes, variables, attributes."""
    defined = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) == "self":
                defined.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            defined.add(ast.unparse(node.args[1]).strip("'"))
    return defined


def list_used(tree: ast.AST, inherited: set[str]) -> set[str]:
    """Private names that a file reaches for: attributes, imports, literal names in ``getattr``.

    Args:
        tree: The file.
        inherited: What ``self`` may have from a class in another file of litlab.
    """
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_own = ast.unparse(node.value) == "self" and node.attr in inherited
            if not is_own and ast.unparse(node) != "os._exit":
                used.add(node.attr)
        elif isinstance(node, ast.Import):
            used.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            used.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            used.add(ast.unparse(node.args[1]).strip("'"))
    return {part for name in used for part in name.split(".") if is_private(part)}


def test_each_private_name_is_in_the_table_with_a_reason():
    trees = {
        path.relative_to(FOLDER).as_posix(): ast.parse(path.read_text())
        for path in FOLDER.rglob("*.py")
    }
    defined = {file: list_defined(tree) for file, tree in trees.items()}
    everywhere = set().union(*defined.values())
    used = {
        (file, name)
        for file, tree in trees.items()
        for name in list_used(tree, everywhere) - defined[file]
    }
    lines = ALLOWED.strip().splitlines()
    assert len(lines) < 10
    listed = {tuple(line.partition(":")[0].split()) for line in lines}
    listed |= {("checkpointing/loops.py", name) for name in LOOPS.split()}
    listed |= {("parallel/strategy.py", name) for name in STRATEGY.split()}
    listed |= {("parallel/divide.py", "_NormBase")}
    assert sorted(used - listed) == []  # new; is there a public way?
    assert sorted(listed - used) == []  # no longer used
