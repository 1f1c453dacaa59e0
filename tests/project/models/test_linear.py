"""The smallest experiment: it finds the line, and says so beside least squares."""

import re
from pathlib import Path

import pytest
import torch

from project.data.linear import LinearData
from project.models.linear import LinearRegression
from tests.conftest import CONFIGS, ROOT, command


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """The folder of a run of the config as it is, and what it printed in printed.txt."""
    root = tmp_path_factory.mktemp("linear")
    with pytest.MonkeyPatch.context() as patch, (root / "printed.txt").open("w") as printed:
        patch.chdir(root)
        patch.setattr("sys.stdout", printed)
        assert command(patch, "fit", "--config", CONFIGS / "linear.yaml", "--trainer.accelerator=cpu") == 0
    return root


def _table(printed: str) -> dict[str, tuple[float, float]]:
    rows = re.findall(r"^(learned|least squares) +weight (\S+)  bias (\S+)$", printed, re.MULTILINE)
    return {name: (float(weight), float(bias)) for name, weight, bias in rows}


def test_it_learns_the_line_that_least_squares_finds(fitted):
    table = _table((fitted / "printed.txt").read_text())
    assert table["least squares"] == pytest.approx((3, 2), abs=0.05)
    assert table["learned"] == pytest.approx(table["least squares"], abs=0.03)


def test_weight_and_bias_are_shown_while_they_are_learned(fitted):
    printed = (fitted / "printed.txt").read_text()
    shown = re.findall(r"^epoch \d+/10  bias (\S+) .*weight (\S+) ", printed, re.MULTILINE)
    assert len(shown) == 10
    learned = _table(printed)["learned"]
    assert (float(shown[-1][1]), float(shown[-1][0])) == pytest.approx(learned, abs=2e-3)
    assert abs(float(shown[0][1]) - 3) > abs(learned[0] - 3)


def test_least_squares_is_that_of_the_training_points(fitted):
    x, y = (part.double() for part in LinearData().train[:])
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    expected = (slope.item(), (y.mean() - slope * x.mean()).item())
    assert _table((fitted / "printed.txt").read_text())["least squares"] == pytest.approx(expected, abs=1e-3)


def test_what_was_learned_is_in_the_checkpoint_and_a_test_prints_it_again(fitted, run, monkeypatch):
    checkpoint = fitted / "lightning_logs/linear/version_0/checkpoints/last.ckpt"
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    learned = _table((fitted / "printed.txt").read_text())["learned"]
    assert (state["line.weight"].item(), state["line.bias"].item()) == pytest.approx(learned, abs=1e-3)
    assert LinearRegression.load_from_checkpoint(checkpoint).hparams["lr"] == 0.2
    monkeypatch.chdir(fitted)
    done = run("test", "--run", "last")
    assert done.code == 0, done.err
    assert _table(done.out)["learned"] == learned


def test_the_points():
    data, other = LinearData(noise=0.5), LinearData(noise=0.5)
    assert torch.equal(data.train[:][0], other.train[:][0])
    assert (len(data.train), len(data.test)) == (800, 200)
    x, y = data.train[:]
    assert x.shape == y.shape == (800, 1)
    assert (y - 3 * x - 2).std().item() == pytest.approx(0.5, rel=0.1)
    batches = [next(iter(data.train_dataloader()))[0] for _ in range(2)]
    assert not torch.equal(*batches), "in random order"


def test_it_is_read_in_a_few_minutes():
    files = ("configs/linear.yaml", "src/project/models/linear.py", "src/project/data/linear.py")
    assert sum(len((ROOT / file).read_text().splitlines()) for file in files) < 80
