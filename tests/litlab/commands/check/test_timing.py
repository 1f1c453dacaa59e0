"""What a run costs: timed steps and validations, and its length by its settings."""

import math

import pytest
from lightning.pytorch import Trainer

from litlab.commands.check.check import run_length
from tests.litlab.commands.check.conftest import make_data, make_model

pytestmark = pytest.mark.filterwarnings("ignore:.*tensorboardX", "ignore:Total length of `list`")


@pytest.mark.parametrize(
    ("has_val", "seconds", "steps", "rows"),
    [
        # Without the warm-up: 180 * 0.2 + 3 * 0.6; five seconds of steps, by the second one
        (True, (0.1, 0.2, 0.01), 52, ["step 200 ms", "validation 600 ms", "about 37.8 s"]),
        (False, (30, 30, 0), 1, ["step 30 s", "validation none"]),
        (True, (1, 1, 2), 7, ["validation 2.0 minutes"]),  # cut short after five seconds
    ],
)
def test_the_steps_after_a_warm_up_are_timed(checked, monkeypatch, has_val, seconds, steps, rows):
    """Time passes only in the network: in the warm-up, in a later step, in validation."""
    now, done = 0.0, 0

    def pass_time(network, inputs, outputs):
        nonlocal now, done
        now += seconds[module.global_step >= 2 if network.training else 2]
        done += network.training
        return outputs

    module = make_model(pass_time)
    monkeypatch.setattr("time.perf_counter", lambda: now)
    out = checked(module, make_data(has_val=has_val))
    assert [row for row in rows if row not in out] == []
    assert done == steps


INF, FIVE = math.inf, {"max_epochs": 5}


@pytest.mark.parametrize(
    ("settings", "batches", "length"),
    [
        # As Lightning 2.6 then does
        ({"max_epochs": 3, "accumulate_grad_batches": 2}, 7, (4, 12, 3)),
        ({"max_epochs": 2, "max_steps": 10, "val_check_interval": 0.3}, 7, (7, 10, 4)),
        # By batches of the run
        ({"check_val_every_n_epoch": None, "val_check_interval": 4, **FIVE}, 7, (7, 35, 8)),
        ({"max_steps": 9}, INF, (INF, 9, 0)),
        ({"max_epochs": 3, "val_check_interval": "00:00:00:30"}, 7, (7, 21, 0)),
    ],
    ids=str,
)
def test_length(settings, batches, length):
    run = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **settings)
    *steps, validations = run_length(run, batches, validated=True)
    assert tuple(steps) == length[:2]
    assert 0 <= validations - length[2] < 1
    assert run_length(run, batches, validated=False) == (*length[:2], 0)
