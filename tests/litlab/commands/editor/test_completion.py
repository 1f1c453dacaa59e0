"""The scripts, as bash and zsh run them: what TAB offers at the end of a line."""

import contextlib
import io
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.conftest import command

# A completion function is told the words of the line in variables, and leaves the candidates in one. The script is read
# twice, as by a shell whose ~/.bashrc is read again.
BASH = """
before() {{ COMPREPLY=(kept); }}
complete -F before python
source {script}
source {script}
COMP_WORDS=({words}) COMP_CWORD={last}
_auks_of_{entry} {entry}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# In zsh it hands them to compadd, which works while a line is being edited only; so does compset.
ZSH = """
compdef() {{ :; }}
_files() {{ :; }}
compset() {{ PREFIX=${{PREFIX#*=}}; }}
compadd() {{ while [[ $1 != -- ]]; do shift; done; shift; print -l -- "$@"; }}
before() {{ compadd -- kept; }}
typeset -A _comps=(python before)
source {script}
words=({words}) CURRENT={count} PREFIX=$words[-1]
_auks_of_{entry}
"""
RUNS = ["images/version_0", "images/version_1", "images", "deep/er/version_0", "deep/er", "last", "best"]
# What TAB offers at the end of a line: a list is all of it, a set some.
LINES = {
    "python -m auks ": {"fit", "sweep", "runs", "completion", "--help"},
    "auks ": {"fit", "sweep", "runs", "completion", "--help"},
    "python3 -m auks fi": ["fit"],
    "auks fit --tra": ["--trainer", "--trainer."],
    "auks fit --trainer.call": ["--trainer.callbacks", "--trainer.callbacks+", "--trainer.callbacks."],
    "auks fit --trainer.max_epo": ["--trainer.max_epochs"],
    "auks validate --trainer.max_epo": ["--trainer.max_epochs"],
    "auks bench --trainer.max_epo": ["--trainer.max_epochs"],
    "auks shards --shard": ["--shard_mb"],
    "auks shards --data.batch_s": ["--data.batch_size"],
    "auks export --data.batch_s": ["--data.batch_size"],
    "auks fit --model.": {"--model.hidden_size", "--model.width", "--model.optimizer", "--model.optimizer."},
    "auks fit --model.optimizer.weight_": ["--model.optimizer.weight_decay"],
    "auks fit --model.schedule.scheduler.warm": ["--model.schedule.scheduler.warmup"],
    "auks fit --checkpoint.moni": ["--checkpoint.monitor"],
    "auks fit --model.he": ["--model.help"],
    "auks fit --model.help SmallF": ["SmallForecaster"],
    "auks fit --res": ["--resume"],
    "auks fit --see": ["--seed_everything", "--seeds"],
    "auks test --re": [],
    "auks test --ru": ["--run"],
    "auks predict --outp": ["--output"],
    "auks fit --model ": {"SmallCNN", "SmallForecaster", "Classifier"},
    "auks fit --model=SmallC": ["SmallCNN"],
    "auks fit --model.optimizer Adam": ["Adam", "AdamW", "Adamax"],
    "auks fit --model.network auks.im": ["auks.images.MNASNet"],
    "auks fit --model.activation ": ["tanh", "relu"],
    "auks fit --trainer.callbacks+=Pic": ["Pictures"],
    "auks fit --trainer.callbacks+ Pic": ["Pictures"],
    "auks fit --trainer.callbacks=": {"EMA", "Pictures"},
    "auks fit --trainer.precision bf16-": ["bf16-true", "bf16-mixed"],
    "auks fit --test_after_fit ": ["true", "false"],
    "auks fit --trainer.max_epochs ": [],
    "auks fit --check --resu": ["--resume"],
    "auks fit --config ": ["configs/images.yaml", "configs/with/smoke.yaml"],
    "auks sweep --config ": ["configs/sweeps/images.yaml"],
    "auks fit --config configs/images.yaml --config configs/w": ["configs/with/smoke.yaml"],
    "auks fit --early_stopping.monitor ": ["val/acc", "test/f1"],
    "auks runs --sort te": ["test/f1"],
    "auks runs ": RUNS,
    "auks compare images/version_0 deep/er/": ["deep/er/version_0"],
    "auks test --run ": RUNS,
    "auks export --run l": ["last"],
    "auks fit --init_from best": ["best"],
    "auks test --ckpt_path ": ["best", "last"],
    "auks export --format on": ["onnx"],
    "auks export --quantize ": {"int8-weights"},
    "auks completion ": ["bash", "zsh"],
    "auks schema --": ["--help"],
    "auks nothing --": [],
    "python -m other fit --": ["kept"],  # what completed python before
    "python script.py --": ["kept"],
}
SHELLS = [
    "bash",
    pytest.param("zsh", marks=pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")),
]


@pytest.fixture(scope="module", params=SHELLS)
def offered(request, schemas, tmp_path_factory) -> Callable[[str], list[str]]:
    """What a shell offers at the end of a line, in a folder with configs and runs."""
    shell, folder = request.param, tmp_path_factory.mktemp("work")
    for run in ("images/version_0", "images/version_1", "deep/er/version_0", "sweeps/images/trial_0007/version_0"):
        (folder / "lightning_logs" / run).mkdir(parents=True)
    (folder / "lightning_logs/images/version_1/metrics.json").write_text('{"test": {"test/f1": 0.5}}')
    for config in ("images", "with/smoke", "sweeps/images"):
        (folder / f"configs/{config}.yaml").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"configs/{config}.yaml").write_text("checkpoint: {monitor: val/acc, mode: max}\n")
    script = folder / "script"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.chdir(folder)
        patch.setattr("litlab.commands.editor.completion.all_schemas", lambda: schemas)  # takes seconds for each shell
        assert command(patch, "completion", shell, package="auks") == 0
    script.write_text(printed.getvalue())

    def offer(line: str) -> list[str]:
        words = line.split(" ")
        if shell == "bash":  # which takes --flag=value for three words
            words = [part for word in words for part in word.replace("=", " = ").split(" ")]
            words = words[:-1] if line.endswith("=") else words
        quoted = " ".join(f"'{word}'" for word in words)
        entry = "python" if words[0].startswith("python") else "function"
        text = {"bash": BASH, "zsh": ZSH}[shell].format(
            script=script, words=quoted, last=len(words) - 1, count=len(words), entry=entry
        )
        options = ["--norc"] if shell == "bash" else ["-f"]
        done = subprocess.run([shell, *options], input=text, cwd=folder, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout.split()

    return offer


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_completed(offered, line):
    wanted, found = LINES[line], offered(line)
    assert len(found) == len(set(found))
    assert sorted(found) == sorted(wanted) if isinstance(wanted, list) else wanted <= set(found)


def test_a_shell_that_is_not_known_is_one_line(run):
    done = run("completion", "fish")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: completion: argument shell: invalid choice: 'fish' (choose from ")
