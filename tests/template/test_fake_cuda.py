"""Every shipped experiment trains, validates and tests on a CUDA device that does not exist: see
    tests/fake_cuda.py.

A step that waits for the device, or mixes devices, fails here.
"""

import pytest

from tests.conftest import SHIPPED, experiment_of, mark_slow
from tests.fake_cuda import FEW, expect_warnings
from tests.fake_cuda import on_fake_cuda as on_fake_cuda
from tests.template.overlays import SMALL

CONFIG_OF = {experiment_of(path): path for path in SHIPPED}
# The device has no numbers, which FID asks for, no gradient within a step, and can't be built for
NOT_HERE = {"gan", "maml", "operators"}
# The others are like these but in size
FAST = ("cifar", "forecast", "language_model", "segmentation", "text")


@expect_warnings
@pytest.mark.parametrize("name", mark_slow(sorted(CONFIG_OF.keys() - NOT_HERE), *FAST))
def test_steps_wait_for_nothing_and_mix_no_devices(on_fake_cuda, run, short, name):
    # Of one member: whether there are copies of others is asked of their numbers
    config, small = CONFIG_OF[name], SMALL.get(name, [])
    run("fit --config", config, *short(config), *small, *FEW).check()
    assert on_fake_cuda["train"] == 3
    assert on_fake_cuda["test"] == 2
