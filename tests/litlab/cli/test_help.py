"""``--help``: answered at once, what is used most first, and every setting below."""

import re
import subprocess
import sys

import pytest
import yaml

from litlab.cli.help import FIRST_SCREEN
from tests.litlab.conftest import CONFIGS


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['auks', '--help']\n"
        "from litlab.cli.main import run_command; assert run_command('auks') == 0\n"
        "heavy = {'torch', 'lightning', 'jsonargparse', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for verb in ("fit", "validate", "test", "predict"):
        assert f"\n  {verb} " in done.stdout


def test_a_mistyped_command_is_told_the_nearest(run):
    done = run("fitt")
    assert (done.code, done.err) == (2, "error: fitt: there is no such command; did you mean 'fit'?\n")


@pytest.mark.parametrize("verb", FIRST_SCREEN)
def test_help_of_a_verb(run, verb):
    done = run(verb, "--help")
    assert done.code == 0
    assert done.out.startswith(
        f"usage: python -m auks {verb} [--config FILE ...] [--key value ...]\n\n{FIRST_SCREEN[verb]}"
    )
    for key in ("checkpoint", "early_stopping", "compile", "vram", "experiment", "data", "model", "trainer.max_epochs"):
        assert re.search(rf"^  --{key} ", done.out, re.MULTILINE), key
    for option, verbs in (("resume", ["fit"]), ("run", ["validate", "test", "predict"]), ("input", ["predict"])):
        assert bool(re.search(rf"^  --{option} [A-Z]", done.out, re.MULTILINE)) == (verb in verbs)


def test_class_help_is_the_docstring(run):
    done = run("fit", "--model.help", "SmallCNN")
    assert done.code == 0
    assert "Channels of the convolution" in " ".join(done.out.split())


def test_the_first_screen_of_fit_names_settings_that_exist(run):
    often = FIRST_SCREEN["fit"].partition("Changed most often:")[2].partition("\n\n")[0].split()
    config = ["--config", CONFIGS / "images.yaml", "--early_stopping.monitor=val/acc"]
    done = run("fit", *config, *often, "--print_config")
    assert done.code == 0, done.err
    settings = yaml.safe_load(done.out)
    assert settings["trainer"]["accumulate_grad_batches"] == 4
    assert settings["early_stopping"]["init_args"]["patience"] == 5
