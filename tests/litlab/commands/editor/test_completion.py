"""The script as bash runs it: what TAB offers at the end of a line."""

import contextlib
import io
import subprocess
from collections.abc import Callable

import pytest

from tests.conftest import command

# A completion function is told the words of the line in variables, and leaves the candidates in one.
BASH = """
source ./script
COMP_WORDS=({words}) COMP_CWORD={last}
_auks_complete
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
RUNS = ["images/version_0", "images", "deep/er/version_0", "deep/er", "last", "best"]
# A list is all that is offered, a set some of it.
LINES = {
    "python -m auks ": {"fit", "sweep", "runs", "completion"},
    "python3 -m auks fi": ["fit"],
    "auks ": {"fit", "sweep", "runs", "completion"},
    "auks fit --tra": ["--trainer", "--trainer."],
    "auks fit --trainer.call": ["--trainer.callbacks", "--trainer.callbacks+", "--trainer.callbacks.",
                                "--trainer.callbacks+."],
    "auks validate --trainer.max_epo": ["--trainer.max_epochs"],
    "auks export --data.batch_s": ["--data.batch_size"],
    "auks fit --model.": {"--model.hidden_size", "--model.width", "--model.optimizer", "--model.optimizer."},
    "auks fit --model.optimizer.weight_": {"--model.optimizer.weight_decay"},
    "auks fit --model.schedule.scheduler.warm": ["--model.schedule.scheduler.warmup"],
    "auks fit --see": ["--seed_everything", "--seeds"],
    "auks fit --model ": {"SmallCNN", "SmallForecaster", "Classifier"},
    "auks fit --model=SmallC": ["SmallCNN"],
    "auks fit --model.optimizer Adam": ["Adam", "AdamW", "Adamax"],
    "auks fit --model.activation ": {"tanh", "relu"},
    "auks fit --trainer.callbacks+=Pic": ["Pictures"],
    "auks fit --trainer.precision bf16-": ["bf16-true", "bf16-mixed"],
    "auks fit --test_after_fit ": ["true", "false"],
    "auks fit --trainer.max_epochs ": [],
    "auks fit --config ": [],  # the shell's names of files
    "auks fit --resume ": RUNS,
    "auks compare images deep/er/": ["deep/er/version_0"],
    "auks runs --so": ["--sort"],
    "auks export --format on": ["onnx"],
    "auks nothing --": [],
    "python -m other fit --": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def offer(schema, tmp_path_factory) -> Callable[[str], list[str]]:
    """What bash offers at the end of a line, in a folder with runs."""
    folder = tmp_path_factory.mktemp("work")
    for run in ("images/version_0", "deep/er/version_0", "sweeps/images/trial_0007/version_0"):
        (folder / "lightning_logs" / run).mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr("litlab.commands.editor.completion.make_schema", lambda: schema)  # it takes seconds
        assert command(patch, "completion", package="auks") == 0
    (folder / "script").write_text(printed.getvalue())

    def run_bash(line: str) -> list[str]:
        words = line.replace("=", " = ").split(" ")  # --flag=value is three words
        quoted = " ".join(f"'{word}'" for word in words)
        text = BASH.format(words=quoted, last=len(words) - 1)
        done = subprocess.run(["bash", "--norc"], input=text, cwd=folder, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return run_bash


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_completed(offer, line):
    expected, words = LINES[line], offer(line)
    assert len(words) == len(set(words))
    assert sorted(words) == sorted(expected) if isinstance(expected, list) else expected <= set(words)
