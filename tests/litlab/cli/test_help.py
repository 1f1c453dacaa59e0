"""What ``--help`` of the verbs shows: the first screen, the groups, and text that can be read."""

import re

import pytest
import yaml

from litlab.cli.help import FIRST_SCREEN, plain
from tests.litlab.conftest import CONFIGS
from tests.processes import Python

VERBS = ("fit", "validate", "test", "predict")


@pytest.mark.parametrize("verb", VERBS)
def test_help_begins_with_what_is_used_most_and_groups_the_rest(run, verb):
    done = run(verb, "--help")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == f"usage: python -m auks {verb} [--config FILE ...] [--key value ...]"
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    screen = [title for title in titles if f"\n{title}\n" in FIRST_SCREEN[verb]]
    assert titles == [
        *screen,
        "Command and run:",
        "Model and data:",
        "Checkpoints, callbacks and techniques (SECTION.help shows their settings):",
        "Trainer: how long, how often:",
        "Trainer: devices and precision:",
        "Trainer: steps:",
        "Trainer: loggers, callbacks, debugging:",
    ]  # and no others: each setting has its group
    assert lines.index("Command and run:") <= 24  # a small terminal
    assert max(map(len, lines[: lines.index("Command and run:")])) <= 105
    for setting in ("model", "data", "checkpoint", "compile", "trainer.max_epochs", "trainer.precision", "experiment"):
        assert re.search(rf"^  (-c CONFIG, )?--{re.escape(setting)} ", done.out, re.MULTILINE), setting
    for option, verbs in (("resume", ["fit"]), ("run", VERBS[1:]), ("input", ["predict"])):
        assert bool(re.search(rf"^  --{option} [A-Z]", done.out, re.MULTILINE)) == (verb in verbs)
    for noise in ("__main__", ":class:", ":paramref:", "``", "weights_only"):
        assert noise not in done.out.partition("\nCommand and run:")[2], noise
    assert not re.search(r"^  --[\w.]+\.help ", done.out.partition("\nCommand and run:")[2], re.MULTILINE)


def test_the_first_screen_of_fit_names_settings_that_exist(run):
    often = FIRST_SCREEN["fit"].partition("Changed most often:")[2].partition("\n\n")[0].split()
    assert len(often) == 24
    config = ["--config", CONFIGS / "images.yaml", "--early_stopping.monitor=val/acc"]
    done = run("fit", *config, *often, "--print_config")
    assert done.code == 0, done.err
    settings = yaml.safe_load(done.out)
    assert settings["trainer"]["accumulate_grad_batches"] == 4
    assert settings["early_stopping"]["init_args"]["patience"] == 5


def test_options_of_the_first_screens_are_listed_below(run):
    for verb in VERBS:
        first, _, rest = run(verb, "--help").out.partition("\nCommand and run:")
        for option in re.findall(r"^  --(\w+) ", first, re.MULTILINE):
            assert f"--{option} " in rest or option == "seeds", f"{verb}: {option}"  # that is read before the others


def test_classes_are_listed_with_the_teams_first_and_internal_ones_hidden(run, tmp_path):
    """In a process of its own, which has not imported the classes of other tests."""
    text = " ".join(Python("-m", "auks", "fit", "--help", cwd=tmp_path).communicate()[0].split())
    models = re.search(r"any subclass of LightningModule\. .*?classes: ([\w, ]+)\)", text)
    assert models
    assert models[1].split(", ")[:2] == ["SmallCNN", "SmallTextClassifier"]
    assert "Classifier" in models[1].split(", ")
    assert "EnsembleModule" not in models[1]
    metrics = " ".join(run("fit", "--model.help", "SmallCNN").out.split())
    assert re.search(r"classes: torchmetrics\.[\w.]+, [\w., ]+, \d+ others\)", metrics)


def test_sphinx_markup_becomes_plain_text():
    markup = "See :paramref:`~lightning.pytorch.Trainer.logger` or :class:`Logger`, ``None`` by default."
    assert plain(markup) == "See logger or Logger, None by default."
