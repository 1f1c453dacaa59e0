"""How litlab's sources read: functions are named by verbs. The bound may only become stricter."""

import ast
import inspect
from pathlib import Path

import lightning.pytorch as lightning
import torch
import torchmetrics
from lightning.pytorch.plugins import CheckpointIO, Precision
from lightning.pytorch.strategies import Strategy

import litlab

FILES = [*Path(litlab.__file__).parent.rglob("*.py")]
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


def list_functions() -> set[str]:
    """Return the names of all functions but properties, ``main``, and those that others give."""
    names = set()
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                is_given = node.name in GIVEN or node.name == "main" or node.name.startswith("__")
                if "property" not in decorators and not is_given:
                    names.add(node.name)
    return names


def test_functions_begin_with_a_verb():
    names = list_functions()
    verbs = set(WORDS.split())
    others = [name for name in names if name.lstrip("_").split("_")[0] not in verbs]
    assert len(others) < 0.25 * len(names), sorted(others)
