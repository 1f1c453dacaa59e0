"""Help of a verb, and the classes that it knows by short names."""

import pytest
import yaml

from litlab.cli.help import FIRST_SCREEN
from tests.litlab.conftest import CONFIGS


@pytest.mark.parametrize(("verb", "other"), [("fit", "run"), ("predict", "resume")])
def test_help_of_a_verb(run, verb, other):
    out = run(verb, "--help").out
    assert out.startswith(f"usage: python -m auks {verb} [--config FILE ...] [--key value ...]\n\n{FIRST_SCREEN[verb]}")
    for key in ("checkpoint", "compile", "experiment", "data", "model", "trainer.max_epochs"):
        assert f"\n  --{key} " in out
    assert f"\n  --{other} " not in out.replace(FIRST_SCREEN[verb], "")


def test_a_short_name_leads_to_its_class(run):
    assert "warmup" in run("fit", "--model=SmallCNN", "--model.schedule.scheduler.help", "WarmupDecay").out


def test_the_first_screen_of_fit_names_settings_that_exist(run):
    often = FIRST_SCREEN["fit"].partition("Changed most often:")[2].partition("\n\n")[0].split()
    done = run("fit", "--config", CONFIGS / "images.yaml", *often, "--print_config")
    assert done.code == 0, done.err
    settings = yaml.safe_load(done.out)
    assert settings["trainer"]["accumulate_grad_batches"] == 4
    assert settings["early_stopping"]["init_args"]["patience"] == 5
