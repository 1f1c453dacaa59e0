"""Further changes to training images."""

import pytest
import torch
from torch import Tensor, nn

from litlab.data.images import Augment, AugmentStep, Draw, ImageData
from litlab.data.images.augment import augmented
from litlab.data.images.draws import draws, uniform
from litlab.errors import UserError

ZERO, ONE = torch.zeros(3), torch.full((3,), 1 / 255)  # mean and deviation that leave 0 to 255 as it is


class Shade(AugmentStep):
    """Darkens each image by a random share of `depth`."""

    def __init__(self, depth: float = 1.0, name: str = "shade") -> None:
        super().__init__()
        self.name = name
        self.register_buffer("depth", torch.tensor(depth))

    def forward(self, images: Tensor, draw: Draw) -> Tensor:
        assert draw(self.name).shape == (len(images), 1, 1, 1)
        return images * (1 - self.depth * draw(self.name))


def run(images, *steps, index=None, epoch=0, seed=0, **options):
    index = torch.arange(len(images)) if index is None else index
    return augmented(images, index, Augment(steps=list(steps), **options), (8, 8), ZERO, ONE, seed=seed, epoch=epoch)


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=generator)


def test_each_image_has_its_own_draw_by_seed_epoch_and_number(images):
    white = torch.full_like(images, 255)
    shades = run(white, Shade())[:, 0, 0, 0]
    torch.testing.assert_close(shades, 255 * (1 - uniform(torch.arange(20), 0, 0, "0 shade")))
    assert len(shades.unique()) == 20
    for other in ({"epoch": 1}, {"seed": 1}, {"index": torch.arange(20, 40)}):
        assert not run(white, Shade(), **other)[:, 0, 0, 0].eq(shades).any()


def test_the_batch_does_not_matter(images):
    whole = run(images, Shade(), crop=2, flip="random", epoch=3)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    for part in order.split(7):
        assert run(images[part], Shade(), crop=2, flip="random", index=part, epoch=3).equal(whole[part])


def test_draws_of_another_name_or_step_are_independent():
    index = torch.arange(20_000)
    streams = [uniform(index, 0, 0, name) for name in ("0 shade", "0 shine", "1 shade")]
    drawn = torch.stack([*streams, draws(index, 0, 0)["flip"].float() / 2**24])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert (drawn.mean(1) - 0.5).abs().max() < 0.01
    assert (torch.corrcoef(drawn) - torch.eye(4)).abs().max() < 0.03


def test_two_steps_of_one_class_draw_for_themselves(images):
    once, twice = run(images, Shade()), run(images, Shade(), Shade())
    second = twice.sum((1, 2, 3)) / once.sum((1, 2, 3))
    torch.testing.assert_close(second, 1 - uniform(torch.arange(20), 0, 0, "1 shade"), rtol=1e-3, atol=1e-3)


def test_steps_come_after_the_colours_and_before_normalisation_and_cutout(images):
    seen = []

    class Look(nn.Module):
        def forward(self, images):
            seen.append(images)
            return torch.ones_like(images)

    result, before = run(images, Look(), cutout=3, brightness=0.5), run(images, brightness=0.5)
    torch.testing.assert_close(seen[0] * 255, before)
    assert seen[0].min() >= 0
    assert seen[0].max() <= 1
    assert result.eq(0).sum() == 20 * 3 * 9
    assert result[result != 0].eq(255).all()


def test_the_images_that_are_kept_stay_as_they_are(images):
    class InPlace(nn.Module):
        def forward(self, images):
            return images.zero_()

    before = images.clone()
    assert run(images, InPlace()).eq(0).all()
    assert torch.equal(images, before)


def test_torchvision(images):
    from torchvision.transforms import v2

    torch.manual_seed(0)
    result = run(images, v2.ColorJitter(brightness=(0.5, 0.5)), v2.RandomHorizontalFlip(p=1.0))
    torch.testing.assert_close(result, images.float().flip(3) / 2)


def test_a_step_goes_where_the_images_are(images):
    """The meta device stands for a GPU."""
    step = Shade()
    run(images.to("meta"), step, index=torch.arange(20, device="meta"))
    assert step.depth.device.type == "meta"


@pytest.mark.parametrize(
    ("step", "found"), [(nn.MaxPool2d(2), r"\(20, 3, 4, 4\)"), (nn.MaxPool2d(2, return_indices=True), "tuple")]
)
def test_a_step_that_changes_the_shape(images, step, found):
    with pytest.raises(UserError, match=rf"^data\.augment\.steps: MaxPool2d returns {found} for images of shape"):
        run(images, step)


def test_settings_stay_plain_where_python_passes_objects():
    data = ImageData("generated", augment=Augment(crop=2, steps=[Shade()]))
    assert data.hparams["augment"] == {
        "crop": 2, "flip": "none", "cutout": 0, "brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "steps": [],
    }  # fmt: skip
    assert isinstance(data.augment.steps[0], Shade)
