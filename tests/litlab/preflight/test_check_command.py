"""``fit --check`` from the command line."""

import math
import sys
from pathlib import Path

import pytest
from litlab.cli.experiment_cli import ExperimentCLI
from litlab.cli.start import quiet, register_classes
from litlab.cli.user_message import user_message

from litlab.errors import UserError
from litlab.preflight.check import preflight
from tests.litlab.conftest import CONFIGS

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*tensorboardX")


class Checking(ExperimentCLI):
    """Checks in the place of a fit."""

    def _run_subcommand(self, subcommand: str) -> None:
        preflight(self.trainer, self.model, self.datamodule)


@pytest.fixture
def from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def check_it(config: Path, *flags: str) -> str:
        monkeypatch.setattr(sys, "argv", ["auks", "fit", "--config", str(config), *flags])
        quiet()
        register_classes()
        Checking()
        return capsys.readouterr().out

    return check_it


@pytest.mark.parametrize(
    ("config", "guess"), [("images.yaml", math.log(10)), ("text.yaml", math.log(4)), ("series.yaml", None)]
)
def test_the_experiments(from_the_command_line, short, tmp_path, config, guess):
    flags = [*short(CONFIGS / config), "--trainer.precision=32-true"]
    out = from_the_command_line(CONFIGS / config, *flags)
    assert "1 epochs of" in out
    assert "warning" not in out
    assert "a guess" in out if guess is None else f"(a guess: {guess:.4g})" in out
    assert {path.name for path in tmp_path.iterdir()} <= {"data"}
    assert {path.name for path in tmp_path.glob("data/*")} <= {"cache"}


def test_the_flag(run, short, tmp_path):
    flags = [*short(CONFIGS / "series.yaml"), "--check"]
    done = run("fit", "--config", CONFIGS / "series.yaml", *flags)
    assert done.code == 0, done.err
    assert "Preflight" in done.out
    assert not list(tmp_path.iterdir())
    done = run("fit", "--config", CONFIGS / "series.yaml", *flags, "--model.optimizer.lr", "1e30")
    assert done.code == 2
    assert "error: model: the loss is " in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.iterdir())


def test_data_that_is_damaged_is_one_line(from_the_command_line, short, capsys, tmp_path):
    (tmp_path / "photos/train/cat").mkdir(parents=True)
    (tmp_path / "photos/train/dog").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / f"photos/train/{name}/1.png").write_bytes(b"no image")
    flags = [*short(CONFIGS / "images.yaml"), f"--data.path={tmp_path / 'photos'}", "--data.image_size=[32, 32]"]
    with pytest.raises(UserError) as raised:
        from_the_command_line(CONFIGS / "images.yaml", *flags)
    assert "1.png" in (user_message(raised.value) or "")
    assert "Preflight" not in capsys.readouterr().out
