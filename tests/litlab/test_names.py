"""Names in litlab's sources: functions begin with a verb, and the private names of libraries that
are used are in a table.
"""

import ast
import inspect

import lightning.pytorch as lightning
import torch
import torchmetrics
from lightning.pytorch.plugins import CheckpointIO, Precision
from lightning.pytorch.strategies import Strategy

from tests.litlab.test_imports import MODULES

TREES = {name.removeprefix("litlab."): tree for name, tree in MODULES.items()}
# Names that these give are theirs: hooks, and methods that a subclass defines.
BASES = (
    lightning.Callback, lightning.LightningDataModule, lightning.LightningModule, lightning.Trainer,
    CheckpointIO, Precision, Strategy, torchmetrics.Metric, torch.nn.Module,
)  # fmt: skip
GIVEN = {name for base in BASES for name, _ in inspect.getmembers(base)}

WORDS = """
    adapt add allow answer arrange ask attempt augment average begin build calibrate call can cast
    centre change check checkpoint choose classify clip collect compare compile complete compute
    configure conform construct copy count create crop cut decode describe disable divide divides do
    download draw drop dump encode end ends enter estimate evaluate examine expand explain export
    fill find finish fit fits flatten flush follow format gather generate get go guess has import
    initialise is keep lay leave lighten list listen load lock log look make map mask
    matches measure merge mix move multiply name narrow note obtain open order orthogonalise parse
    pass pays pick pin plan precede prepare print publish put quantize raise read receive reflect
    refuse relax release remove rename render renew repeat replace replay report requeue
    resolve restart restore restrict resume round run save scale score search seed select set shard
    share shorten show silence smooth sort split stack standardise start step stop strip suggest sum
    summarise switch synchronize tabulate take takes tell test trace train transform use wait warn
    watch weigh widen work write
"""


def test_functions_begin_with_a_verb():
    """All but properties, ``main``, and those that others give. The bound may only become
    stricter.
    """
    names = {
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("__")
        and "property" not in ast.unparse(node.decorator_list)  # pyright: ignore[reportArgumentType]
    } - {"main", *GIVEN}
    verbs = set(WORDS.split())
    others = [name for name in names if name.lstrip("_").split("_")[0] not in verbs]
    assert len(others) < 0.25 * len(names), sorted(others)


# Private names of libraries, which begin with one underscore. What litlab itself defines under that
# name does not count, and neither does ``os._exit``, which Python documents.

# Module, name and reason
ALLOWED = """
    artifact.artifact      _inductor: where torch documents how AOTInductor's files are made
    callbacks.compile      _dynamo: exceptions, time and graph breaks of torch.compile
    callbacks.compile      _functorch: activation_memory_budget, which has no other switch
    callbacks.compile      _logging: TORCH_LOGS of a process that runs; documented so
    callbacks.memory       _dump_snapshot: documented so, and nothing else for memory_viz
    callbacks.memory       _record_memory_history: the same
    cli.parse_errors       _actions: the names of all flags; get_defaults leaves some out
    commands.export.graph  _int_mm: the operator's name, for which ONNX has another
    commands.plan.measure  _subclasses: FakeTensorMode, documented so
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


def list_private(tree: ast.AST) -> list[set[str]]:
    """Private names that a file gives something; those that it asks ``self`` for; and all others
    that it reaches for: attributes, imports, literal names in ``getattr``.
    """
    given, of_self, named = set(), set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                given.add(name)
            case ast.Name(id=name) | ast.Attribute(value=ast.Name("self"), attr=name) if isinstance(
                node.ctx, ast.Store
            ):
                given.add(name)
            case ast.Call(ast.Name("setattr"), [_, ast.Constant(name), _]):
                given.add(name)
            case ast.Attribute(ast.Name("self"), name):
                of_self.add(name)
            case ast.Attribute(attr=name) | ast.Call(
                ast.Name("getattr"), [_, ast.Constant(name), *_]
            ):
                named.add(name)
            case ast.alias(name=path) | ast.ImportFrom(module=str(path)):
                named.update(path.split("."))
    return [{*filter(is_private, names)} for names in (given, of_self, named - {"_exit"})]


def test_each_private_name_is_in_the_table_with_a_reason():
    private = {file: list_private(tree) for file, tree in TREES.items()}
    ours = set().union(*(given for given, *_ in private.values()))
    used = {
        (file, name)
        for file, (given, of_self, named) in private.items()
        for name in named - given | of_self - ours
    }
    lines = ALLOWED.strip().splitlines()
    assert len(lines) < 10
    listed = {tuple(line.partition(":")[0].split()) for line in lines}
    listed |= {("checkpointing.loops", name) for name in LOOPS.split()}
    listed |= {("parallel.strategy", name) for name in STRATEGY.split()}
    listed |= {("parallel.divide", "_NormBase")}
    assert sorted(used - listed) == []  # new; is there a public way?
    assert sorted(listed - used) == []  # no longer used
