"""What is wrong on a CUDA device that does not exist is found; template/test_fake_cuda.py has the
experiments that do nothing wrong.
"""

import pytest
import torch

from litlab.data.images.store import StoredImages
from litlab.tasks import Classifier
from tests.fake_cuda import DEVICE, FEW, Waited, Watch, expect_warnings, fake_modes
from tests.fake_cuda import on_fake_cuda as on_fake_cuda
from tests.litlab.conftest import CONFIGS

pytestmark = expect_warnings
IMAGES = CONFIGS / "images.yaml"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda loss: loss * loss.item(), "a value is read"),
        (lambda loss: loss * torch.tensor(2.0).to(loss.device), "copied from cpu to cuda"),
    ],
)
def test_what_waits_is_found(on_fake_cuda, run, short, monkeypatch, spoil, says):
    step = Classifier.training_step
    monkeypatch.setattr(Classifier, "training_step", lambda *args: spoil(step(*args)))
    with pytest.raises(Waited, match=says):
        run("fit --config", IMAGES, *short(IMAGES), *FEW)
    assert on_fake_cuda["train"] == 2  # the first step may look at the data


def test_images_that_lie_on_the_device_are_gathered_there():
    images = StoredImages(
        torch.zeros(6, 3, 4, 4, dtype=torch.uint8), torch.arange(6), torch.arange(6)
    )
    watch = Watch()
    with fake_modes(watch):
        there = images.copy(0, DEVICE)
        watch.in_step = True
        batch = there[torch.tensor([2, 0])]
    assert batch["image"].shape == (2, 3, 4, 4)
    assert {value.device for value in batch.values()} == {DEVICE}
