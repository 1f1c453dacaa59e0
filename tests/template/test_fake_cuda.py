"""Every shipped experiment trains, validates and tests on a CUDA device that does not exist: see
    tests/fake_cuda.py.

A step that waits for the device, or mixes devices, fails here.
"""

import pytest

from tests.conftest import SHIPPED, experiment_of
from tests.fake_cuda import FEW, expect_warnings
from tests.fake_cuda import on_fake_cuda as on_fake_cuda
from tests.template.overlays import SMALL

LIKE_OTHERS = "cifar_vgg forecast_ensemble forecast_small linear mlp tabular transfer".split()
# The device has no numbers, which FID asks for, no gradient within a step, and can't be built for
NOT_HERE = ("gan", "maml", "operators")
EXPERIMENTS = [
    pytest.param(path, marks=pytest.mark.matrix if name in LIKE_OTHERS else [], id=name)
    for path in SHIPPED
    if (name := experiment_of(path)) not in NOT_HERE
]


@expect_warnings
@pytest.mark.parametrize("config", EXPERIMENTS)
def test_steps_wait_for_nothing_and_mix_no_devices(on_fake_cuda, run, short, config):
    # Of one member: whether there are copies of others is asked of their numbers
    small = SMALL.get(experiment_of(config), [])
    run("fit --config", config, *short(config), *small, *FEW).check()
    assert on_fake_cuda["train"] == 3
    assert on_fake_cuda["test"] == 2
