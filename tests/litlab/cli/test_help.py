"""Help is answered at once, and only the classes that a command names are imported."""

import re
import subprocess
import sys

import pytest
import yaml

from litlab.cli.help import FIRST_SCREEN
from tests.conftest import PACKAGE, ROOT
from tests.litlab.conftest import CONFIGS

MOST = 110  # modules of litlab that a linear regression imports
HEAVY = "{'torch', 'lightning', 'jsonargparse', 'numpy', 'rich'}"


def python(tmp_path, package: str, arguments: list[object], then: str) -> str:
    """Runs a command in a new process, then a line of code; returns what that printed last."""
    code = (
        f"import sys; sys.argv = ['x', *{[*map(str, arguments)]}]\n"
        f"from litlab.cli.main import run_command; assert run_command('{package}') == 0\n{then}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_help_imports_nothing_heavy(tmp_path):
    assert python(tmp_path, "auks", ["--help"], f"print({HEAVY} & set(sys.modules))") == "set()"


def test_a_small_experiment_imports_little(tmp_path):
    fit = ["fit", "--config", ROOT / "configs/linear.yaml", "--trainer.max_steps=1", "--vram=null"]
    assert int(python(tmp_path, PACKAGE, fit, "print(sum(m.startswith('litlab.') for m in sys.modules))")) <= MOST


@pytest.mark.parametrize("verb", ["fit", "predict"])
def test_help_of_a_verb(run, verb):
    done = run(verb, "--help")
    assert done.code == 0
    usage = f"usage: python -m auks {verb} [--config FILE ...] [--key value ...]"
    assert done.out.startswith(f"{usage}\n\n{FIRST_SCREEN[verb]}")
    for key in ("checkpoint", "early_stopping", "compile", "vram", "experiment", "data", "model", "trainer.max_epochs"):
        assert re.search(rf"^  --{key} ", done.out, re.MULTILINE), key
    for option, owner in (("resume", "fit"), ("run", "predict"), ("input", "predict")):
        assert bool(re.search(rf"^  --{option} [A-Z]", done.out, re.MULTILINE)) == (verb == owner)


def test_a_short_name_leads_to_its_class(run):
    done = run("fit", "--model=SmallCNN", "--model.schedule.scheduler.help", "WarmupDecay")
    assert done.code == 0, done.err
    assert "warmup" in done.out


def test_the_first_screen_of_fit_names_settings_that_exist(run):
    often = FIRST_SCREEN["fit"].partition("Changed most often:")[2].partition("\n\n")[0].split()
    config = ["--config", CONFIGS / "images.yaml", "--early_stopping.monitor=val/acc"]
    done = run("fit", *config, *often, "--print_config")
    assert done.code == 0, done.err
    settings = yaml.safe_load(done.out)
    assert settings["trainer"]["accumulate_grad_batches"] == 4
    assert settings["early_stopping"]["init_args"]["patience"] == 5
