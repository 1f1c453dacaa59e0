"""What an editor accepts and underlines, and what TAB offers in bash."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from litlab.util.yaml import Loader
from tests.conftest import CONFIGS, IS_WHOLE, PACKAGE, ROOT, command
from tests.processes import Python

pytestmark = pytest.mark.filterwarnings("ignore:.*chararray")  # numpy, where jsonargparse looks at its classes

SHIPPED = [*CONFIGS.glob("*.yaml"), *CONFIGS.glob("with/*.yaml")] if IS_WHOLE else []
RIGHT = [
    "trainer.max_epochs: 3",
    "trainer: {callbacks+: [EMA, {class_path: mine.Callback, init_args: {anything: 1}}]}",
    "model: mine.models.Model",
    "model: {init_args: {label_smoothing: 0.1, optimizer: {init_args: {fused: true}}}}",
    "{ema: {decay: 0.9}, swa: null, seed_everything: true, threads: 1, resume: last}",
]
WRONG = {
    "modle: {}": ": 'modle' does not match",
    "trainer: {max_epochs+: [3]}": "trainer: Additional properties are not allowed ('max_epochs+'",
    "model: {init_args: {label_smothing: 0.1}}": "model: ",
    "data: {class_path: ImageData, init_args: {image_size: [3, a]}}": "data.init_args.image_size.1: 'a' is not ",
    "trainer: {callbacks+: [{class_path: EMA, init_args: {monitor: a}}]}": "trainer.callbacks+.0.init_args: Additional",
    "trainer: {max_epochs: three}": "trainer.max_epochs: 'three' is not of type 'integer', 'null'",
    "ema: {decay: 1}": "ema.decay: 1 is greater than or equal to the maximum of 1",
}
# A completion function is told the words of the line in variables, and leaves the candidates in one.
BASH = """
source ./script
COMP_WORDS=({words}) COMP_CWORD={last}
_PACKAGE_complete
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# What TAB offers at the end of a line; a list is all of it, a set some.
LINES = {
    "python -m PACKAGE ": {"fit", "sweep", "runs", "completion"},
    "PACKAGE fit --tra": ["--trainer", "--trainer."],
    "PACKAGE fit --model.": {"--model.label_smoothing", "--model.horizon", "--model.optimizer", "--model.optimizer."},
    "PACKAGE fit --model.schedule.scheduler.warm": ["--model.schedule.scheduler.warmup"],
    "PACKAGE fit --trainer.callbacks+=Conf": ["ConfusionMatrix"],
    "PACKAGE fit --trainer.precision bf16-": ["bf16-true", "bf16-mixed"],
    "PACKAGE fit --config ": [],  # the shell's names of files
    "PACKAGE fit --resume ": ["images/version_0", "images", "last", "best"],
    "PACKAGE export --format on": ["onnx"],
    "python -m other fit --": [],
}


def find_mistake(validator: Draft7Validator, text: str) -> str:
    """Return what an editor underlines in YAML, as its place and the reason; empty where nothing is wrong."""
    error = best_match(validator.iter_errors(yaml.load(text, Loader)))
    return "" if error is None else f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


def test_what_an_editor_accepts_and_what_tab_offers(tmp_path, monkeypatch, capsys):
    """In one test, and with the team's package, as the schema takes seconds."""
    process = Python("-m", PACKAGE, "schema", cwd=tmp_path)  # which knows no classes of tests
    assert process.wait() == 0, process.printed()
    schema = json.loads((tmp_path / ".vscode/schemas/fit.json").read_text())
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema)
    for text in [*RIGHT, *(config.read_text() for config in SHIPPED)]:
        assert find_mistake(validator, text) == "", text
    for text, message in WRONG.items():
        assert find_mistake(validator, text).startswith(message), text
    for config in SHIPPED:
        named = config.read_text().partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
        assert (config.parent / named).resolve() == ROOT / ".vscode/schemas/fit.json"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("litlab.commands.editor.completion.make_schema", lambda: schema)
    assert command(monkeypatch, "completion") == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    Path("lightning_logs/images/version_0").mkdir(parents=True)
    for line, expected in LINES.items():
        words = line.replace("PACKAGE", PACKAGE).replace("=", " = ").split(" ")  # --flag=value is three words
        text = BASH.format(words=" ".join(f"'{word}'" for word in words), last=len(words) - 1)
        text = text.replace("PACKAGE", PACKAGE)
        done = subprocess.run(["bash", "--norc"], input=text, capture_output=True, text=True, timeout=60, check=True)
        offered = done.stdout.split()
        assert done.stderr == ""
        assert len(offered) == len(set(offered)), line
        is_offered = sorted(offered) == sorted(expected) if isinstance(expected, list) else expected <= set(offered)
        assert is_offered, (line, offered)
