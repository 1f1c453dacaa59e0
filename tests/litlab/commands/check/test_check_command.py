"""``fit --check`` from the command line."""

import math

import pytest

from tests.litlab.conftest import CONFIGS


@pytest.mark.parametrize(
    ("config", "guess"), [("images.yaml", math.log(10)), ("text.yaml", math.log(4)), ("series.yaml", None)]
)
def test_the_experiments(run, short, tmp_path, config, guess):
    flags = [*short(CONFIGS / config), "--trainer.precision=32-true"]
    done = run("fit", "--check", "--config", CONFIGS / config, *flags)
    assert done.code == 0, done.err
    assert " an epoch; 1 validations" in done.out
    assert "warning" not in done.out
    assert ("loss of a guess │ " if guess is None else f"loss of a guess │ {guess:.4g}") in done.out
    assert {path.name for path in tmp_path.iterdir()} <= {"data"}
    assert {path.name for path in tmp_path.glob("data/*")} <= {"cache"}


def test_a_run_that_would_fail(run, short, tmp_path):
    flags = [*short(CONFIGS / "series.yaml"), "--model.optimizer.lr=1e30"]
    done = run("fit", "--check", "--config", CONFIGS / "series.yaml", *flags)
    assert done.code == 2
    assert "error: model: the loss is " in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.iterdir())
