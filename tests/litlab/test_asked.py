"""The table of what is asked of model and data, in docs/callbacks.md: nothing that the code reads is missing."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from lightning.pytorch import LightningDataModule, LightningModule

import litlab
from litlab.data import ExperimentData
from litlab.tasks import ExperimentModule
from tests.conftest import ROOT

LITLAB = Path(litlab.__file__).parent
NAMES = {"model": {"pl_module", "model", "lightning_module"}, "data": {"data", "datamodule"}}  # of variables
CLASSES = {"LightningModule": "model", "LightningDataModule": "data", "ExperimentData": "data"}
OWN = {"model": set(dir(LightningModule())), "data": set(dir(LightningDataModule()))}
OF_A_CONFIG = {"class_path", "get"}  # of `config.model`, which is no model
READERS = {"getattr": (0, 1), "hasattr": (0, 1), "is_overridden": (1, 0)}  # where the object and the name stand
# data/ and util/ know neither models nor DataModules but their own; what serve/ calls a model is what it serves.
OTHERS = [LITLAB / name for name in ("data", "util", "commands/serve")]
MODULES = [path for path in sorted(LITLAB.rglob("*.py")) if not any(map(path.is_relative_to, OTHERS))]


def of(node: ast.AST, names: dict[str, set[str]]) -> str | None:
    """Whether an expression is a model or a DataModule, by its name: `trainer.datamodule`, `pl_module`."""
    if isinstance(node, ast.Call):  # getattr(trainer, "datamodule", None); imported(config.data.class_path)
        inner = [part for argument in node.args for part in ast.walk(argument)]
        words = {part.value for part in inner if isinstance(part, ast.Constant)}
        words |= {part.attr for part in inner if isinstance(part, ast.Attribute)}
        return next((kind for kind in names if names[kind] & {word for word in words if isinstance(word, str)}), None)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return next((kind for kind in names if name in names[kind]), None)


def asked(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What is read of a model or a DataModule beyond Lightning's: the kind, and the name."""
    names = {kind: set(usual) for kind, usual in NAMES.items()}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name) and node.annotation.id in CLASSES:
            names[CLASSES[node.annotation.id]].add(node.arg)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (kind := of(node.value, names)) and not isinstance(node.value, ast.Call):
            if node.attr not in OWN[kind] | OF_A_CONFIG:
                yield kind, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS:
            owner, name = (node.args[place] for place in READERS[node.func.id])
            if isinstance(name, ast.Constant) and (kind := of(owner, names)) and name.value not in NAMES[kind]:
                yield kind, name.value


def table() -> dict[str, set[str]]:
    """The names in the table's second column, by the first."""
    text = (ROOT / "docs/callbacks.md").read_text().partition("## What is asked of model and data")[2]
    found: dict[str, set[str]] = {"model": set(), "data": set()}
    for kind, cell in re.findall(r"^\| (model|data) \| (.*?) \|", text, re.MULTILINE):
        found[kind] |= {name.partition("(")[0] for name in re.findall(r"`([^A-Z`][^`]*)`", cell)}
    return found


def wanted() -> dict[str, set[str]]:
    """What the code reads."""
    found: dict[str, set[str]] = {"model": set(), "data": set()}
    for path in MODULES:
        for kind, name in asked(ast.parse(path.read_text())):
            found[kind].add(name)
    return found


def test_the_table_has_whatever_is_read():
    for kind, names in wanted().items():
        assert names - table()[kind] == set(), f"add to docs/callbacks.md what litlab reads of the {kind}"


def test_the_table_has_nothing_that_nobody_reads():
    """What is not read is Lightning's, an entry of a batch or of an output, or a flag."""
    further = {"logits", "forecast", "lower", "upper", "past", "future", "start", "network", "metrics", "--input"}
    further |= {"times"}  # of ForecastPlots, which is the project's
    for kind, base in (("model", ExperimentModule), ("data", ExperimentData)):
        assert table()[kind] - wanted()[kind] - set(dir(base)) - OWN[kind] - further == set()


def test_it_finds_each_way_to_read():
    ways = {
        "pl_module.a": ("model", "a"),
        "self.model.a()": ("model", "a"),
        "trainer.datamodule.a = 1": ("data", "a"),
        "getattr(pl_module, 'a', None)": ("model", "a"),
        "hasattr(getattr(trainer, 'datamodule', None), 'a')": ("data", "a"),
        "hasattr(imported(config.data.class_path), 'a')": ("data", "a"),
        "is_overridden('a', data)": ("data", "a"),
        "def f(module: LightningModule): module.a": ("model", "a"),
    }
    for text, found in ways.items():
        assert list(asked(ast.parse(text))) == [found], text
    assert list(asked(ast.parse("pl_module.parameters(), config.model.class_path, getattr(trainer, 'model')"))) == []
