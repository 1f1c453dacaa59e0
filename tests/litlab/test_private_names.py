"""Which private names of libraries litlab uses, and why: a table that is compared with the sources.

A private name begins with one underscore. What litlab itself defines under that name does not
count, and neither does ``os._exit``, which Python documents.
"""

import ast
from pathlib import Path

import litlab

FOLDER = Path(litlab.__file__).parent
LOOPS = "Lightning (2.6.6) has no public way; each function says what for"
PARALLEL = "there is no public way; the file says what for"
ALLOWED = {
    ("_inductor", "artifact/artifact.py"): "where torch documents how AOTInductor's files are made",
    ("_dynamo", "callbacks/compile.py"): "exceptions, time and graph breaks of torch.compile",
    ("_functorch", "callbacks/compile.py"): "activation_memory_budget, which has no other switch",
    ("_logging", "callbacks/compile.py"): "TORCH_LOGS of a process that runs; documented so",
    ("_dump_snapshot", "callbacks/memory.py"): "documented so, and nothing else for memory_viz",
    ("_record_memory_history", "callbacks/memory.py"): "the same",
    ("_actions", "cli/parse_errors.py"): "the names of all flags; get_defaults leaves some out",
    ("_int_mm", "commands/export/graph.py"): "the operator's name, for which ONNX has another",
    ("_subclasses", "commands/plan/measure.py"): "FakeTensorMode, documented so",
    ("_average_model", "checkpointing/loops.py"): LOOPS,
    ("_batches_that_stepped", "checkpointing/loops.py"): LOOPS,
    ("_broadcast_sigterm_tensor", "checkpointing/loops.py"): LOOPS,
    ("_can_stop_early", "checkpointing/loops.py"): LOOPS,
    ("_combined_loader", "checkpointing/loops.py"): LOOPS,
    ("_data_fetcher", "checkpointing/loops.py"): LOOPS,
    ("_should_check_val_fx", "checkpointing/loops.py"): LOOPS,
    ("_signal_connector", "checkpointing/loops.py"): LOOPS,
    ("_NormBase", "parallel/divide.py"): PARALLEL,
    ("_apply", "parallel/strategy.py"): PARALLEL,
    ("_foreach_mul_", "parallel/strategy.py"): PARALLEL,
    ("_foreach_norm", "parallel/strategy.py"): PARALLEL,
    ("_layer_sync", "parallel/strategy.py"): PARALLEL,
    ("_save_distributed_checkpoint", "parallel/strategy.py"): PARALLEL,
    ("_update_properties", "parallel/strategy.py"): PARALLEL,
}


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
        (name, file)
        for file, tree in trees.items()
        for name in list_used(tree, everywhere) - defined[file]
    }
    assert sorted(used - ALLOWED.keys()) == []  # new; is there a public way?
    assert sorted(ALLOWED.keys() - used) == []  # no longer used
    assert sum(reason not in (LOOPS, PARALLEL) for reason in ALLOWED.values()) < 10
