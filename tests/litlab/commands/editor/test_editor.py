"""What an editor accepts and underlines, and what TAB offers in bash."""

import subprocess

import pytest
from jsonschema import Draft7Validator

from tests.conftest import command
from tests.litlab.commands.editor.schemas import find_mistake, write_schema
from tests.litlab.conftest import CONFIGS

pytestmark = pytest.mark.filterwarnings("ignore:.*chararray")  # numpy, where jsonargparse looks at its classes

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
_auks_complete
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# What TAB offers at the end of a line; a list is all of it, a set some.
LINES = {
    "python -m auks ": {"fit", "sweep", "runs", "completion"},
    "auks fit --tra": ["--trainer", "--trainer."],
    "auks fit --model.": {"--model.hidden_size", "--model.width", "--model.optimizer", "--model.optimizer."},
    "auks fit --model.schedule.scheduler.warm": ["--model.schedule.scheduler.warmup"],
    "auks fit --trainer.callbacks+=Pic": ["Pictures"],
    "auks fit --trainer.precision bf16-": ["bf16-true", "bf16-mixed"],
    "auks fit --config ": [],  # the shell's names of files
    "auks fit --resume ": ["images/version_0", "images", "last", "best"],
    "auks export --format on": ["onnx"],
    "python -m other fit --": [],
}


def test_what_an_editor_accepts_and_what_tab_offers(team, tmp_path, monkeypatch, capsys):
    """In one test, as the schema takes seconds."""
    schema = write_schema(team, tmp_path)
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema)
    for text in [*RIGHT, *(config.read_text() for config in CONFIGS.rglob("*.yaml"))]:
        assert find_mistake(validator, text) == "", text
    for text, message in WRONG.items():
        assert find_mistake(validator, text).startswith(message), text

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("litlab.commands.editor.completion.make_schema", lambda: schema)
    assert command(monkeypatch, "completion", package="auks") == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "lightning_logs/images/version_0").mkdir(parents=True)
    for line, expected in LINES.items():
        words = line.replace("=", " = ").split(" ")  # --flag=value is three words
        text = BASH.format(words=" ".join(f"'{word}'" for word in words), last=len(words) - 1)
        done = subprocess.run(["bash", "--norc"], input=text, capture_output=True, text=True, timeout=60, check=True)
        offered = done.stdout.split()
        assert done.stderr == ""
        assert len(offered) == len(set(offered)), line
        is_offered = sorted(offered) == sorted(expected) if isinstance(expected, list) else expected <= set(offered)
        assert is_offered, (line, offered)
