"""Help of a verb, and the classes that it knows by short names."""

import pytest

from litlab.cli.help import FIRST_SCREEN


@pytest.mark.parametrize(("verb", "other"), [("fit", "run"), ("predict", "resume")])
def test_help_of_a_verb(run, verb, other):
    first_screen = run(verb, "--help").out
    assert first_screen.endswith(f"[--key value ...]\n\n{FIRST_SCREEN[verb]}")
    out = run(verb, "--help", "all").out
    assert out.startswith(first_screen)
    for key in ("checkpoint", "compile", "experiment", "data", "model", "trainer.max_epochs"):
        assert f"\n  --{key} " in out
    assert f"\n  --{other} " not in out.replace(FIRST_SCREEN[verb], "")


def test_types_are_written_as_yaml_has_their_values(run):
    text = " ".join(run("fit --checkpoint.help").out.split())
    assert "(type: 'min' | 'max' | null, default: null)" in text


def test_a_short_name_leads_to_its_class(run):
    assert "warmup" in run("fit --model=SmallCNN --model.schedule.scheduler.help WarmupDecay").out
