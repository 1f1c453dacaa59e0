"""Random changes to whole batches, each image with its own draw."""

import pytest
import torch
from torch import Tensor, nn

from litlab.data.images import Augment, AugmentStep, Draw
from litlab.data.images.augment import augment_batch, centre, normalise, reflect_pad
from litlab.data.images.draws import uniform
from litlab.errors import UserError

SIZE = (12, 10)


class Shade(AugmentStep):
    """Darkens each image by a random share of `depth`."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("depth", torch.tensor(1.0))

    def forward(self, images: Tensor, draw: Draw) -> Tensor:
        assert draw("shade").shape == (len(images), 1, 1, 1)
        return images * (1 - self.depth * draw("shade"))


ALL = Augment(3, "random", 4, 0.3, 0.3, 0.3, steps=[Shade()])


def pictures(count, size=SIZE):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, *size), dtype=torch.uint8, generator=generator)


def run(images, augment, index=None, epoch=0, seed=0):
    """Without normalisation."""
    index = torch.arange(len(images)) if index is None else index
    return augment_batch(images, index, augment, SIZE, lambda some: some.float().clone(), seed=seed, epoch=epoch)


def same(count, image=None):
    return (pictures(1) if image is None else image).repeat(count, 1, 1, 1)


def test_draws_are_uniform_and_independent():
    index = torch.arange(20_000)
    drawn = torch.cat(
        [uniform(index, 0, 0, "crop_y", "crop_x"), uniform(index, 0, 1, "crop_y"), uniform(index, 1, 0, "x")]
    )
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert (drawn.mean(1) - 0.5).abs().max() < 0.01
    assert (torch.corrcoef(drawn) - torch.eye(len(drawn))).abs().max() < 0.03
    assert torch.corrcoef(torch.stack([drawn[0, 1:], drawn[0, :-1]]))[0, 1].abs() < 0.03
    assert uniform(index[5:], 0, 0, "crop_x")[0].equal(drawn[1, 5:])


def test_nothing_is_just_normalised():
    images = pictures(5)
    assert run(images, Augment()).equal(images.float())
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    expected = (images.double() / 255 - mean.double()[:, None, None]) / std.double()[:, None, None]
    torch.testing.assert_close(normalise(images, mean, std).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["crop", "cutout", "brightness", "contrast", "saturation", "steps"])
def test_each_image_has_its_own_draw(name):
    result = run(same(64), Augment(**{name: getattr(ALL, name)}))
    assert len(result.flatten(1).unique(dim=0)) > 25


def test_draws_do_not_depend_on_the_batch_and_the_input_is_left_alone():
    images = pictures(20)
    before, whole = images.clone(), run(images, ALL, epoch=3)
    assert images.equal(before)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    for part in order.split(7):
        assert run(images[part], ALL, index=part, epoch=3).equal(whole[part])
    assert not run(images, ALL, epoch=4).equal(whole)
    assert not run(images, ALL, epoch=3, seed=1).equal(whole)


def test_crop_is_a_window_of_the_reflected_image_at_any_shift():
    images = pictures(3)
    expected = torch.nn.functional.pad(images.float(), (4, 4, 4, 4), mode="reflect")
    assert reflect_pad(images, 4).float().equal(expected)
    assert centre(reflect_pad(images, 4), *SIZE).equal(images)
    padded = reflect_pad(images[:1], 2)
    windows = {(y, x): padded[0, :, y : y + SIZE[0], x : x + SIZE[1]].float() for y in range(5) for x in range(5)}
    result = run(same(2000), Augment(crop=2))
    found = torch.zeros(5, 5)
    for window in result:
        (place,) = [place for place, expected in windows.items() if window.equal(expected)]
        found[place] += 1
    assert found.min() > 40  # 80 expected
    assert found.max() < 130
    assert run(same(2000, padded), Augment(crop=2)).equal(result)  # padded in advance


def test_flips():
    images = pictures(1000)
    mirrored = images.flip(3).float()
    flipped = [(run(images, Augment(flip="random"), epoch=epoch) == mirrored).all((1, 2, 3)) for epoch in (0, 1)]
    for each in (*flipped, flipped[0] == flipped[1]):
        assert 430 < each.sum() < 570
    results = [run(images, Augment(flip="alternating"), epoch=epoch) for epoch in range(3)]
    assert 430 < (results[0] == mirrored).all((1, 2, 3)).sum() < 570
    assert results[1].equal(results[0].flip(3))
    assert results[2].equal(results[0])


def test_cutout_blanks_one_square_anywhere():
    result = run(same(2000, torch.full((1, 3, *SIZE), 200, dtype=torch.uint8)), Augment(cutout=4))
    blank = result == 0
    assert (blank.sum((2, 3)) == 16).all()
    rows, columns = blank[:, 0].any(2), blank[:, 0].any(1)
    corners = torch.stack([rows.int().argmax(1), columns.int().argmax(1)], 1)
    assert (rows.sum(1) == 4).all()
    assert len(corners.unique(dim=0)) == (12 - 4 + 1) * (10 - 4 + 1)


def test_colours():
    factor = (
        run(same(500, torch.full((1, 3, *SIZE), 100, dtype=torch.uint8)), Augment(brightness=0.3))[:, 0, 0, 0] / 100
    )
    assert 0.7 <= factor.min() < 0.71
    assert 1.29 < factor.max() <= 1.3
    images = pictures(1).clamp(60, 190)
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    grey = (images.float() * weights).sum(1)
    contrast, saturation = (run(same(100, images), Augment(**{name: 0.2})) for name in ("contrast", "saturation"))
    after = (contrast * weights).sum(1)
    torch.testing.assert_close(after.mean((1, 2)), grey.mean().expand(100), rtol=1e-3, atol=0.1)  # it keeps the mean
    assert 0.7 < (after.std((1, 2)) / grey.std()).min() < 0.85
    assert 1.15 < (after.std((1, 2)) / grey.std()).max() < 1.25
    torch.testing.assert_close((saturation * weights).sum(1), grey.expand(100, -1, -1), rtol=1e-3, atol=0.5)
    spread = (saturation.amax(1) - saturation.amin(1)).mean((1, 2))
    assert spread.max() / spread.min() > 1.4
    assert run(pictures(6)[:, :1], Augment(2, "random", 3, 0.1, 0.1)).shape == (6, 1, *SIZE)


# ---- steps


def test_steps_draw_for_themselves_and_come_after_the_colours():
    white = torch.full((20, 3, *SIZE), 255, dtype=torch.uint8)
    index, seen = torch.arange(20), []
    once, twice = (run(white, Augment(steps=[Shade()] * count))[:, 0, 0, 0] for count in (1, 2))
    torch.testing.assert_close(once, 255 * (1 - uniform(index, 0, 0, "0 shade")[0]))
    torch.testing.assert_close(twice / once, 1 - uniform(index, 0, 0, "1 shade")[0], rtol=1e-3, atol=1e-3)

    class Look(nn.Module):
        def forward(self, images):
            seen.append(images.clone())
            return images.zero_()

    images = pictures(20)
    before = images.clone()
    assert run(images, Augment(brightness=0.5, steps=[Look()])).eq(0).all()
    torch.testing.assert_close(seen[0] * 255, run(images, Augment(brightness=0.5)))
    assert images.equal(before)


def test_steps_of_torchvision_and_on_devices():
    from torchvision.transforms import v2

    images = pictures(20)
    steps = [v2.ColorJitter(brightness=(0.5, 0.5)), v2.RandomHorizontalFlip(p=1.0)]
    torch.testing.assert_close(run(images, Augment(steps=steps)), images.float().flip(3) / 2)
    step = Shade()  # the meta device stands for a GPU
    run(images.to("meta"), Augment(steps=[step]), index=torch.arange(20, device="meta"))
    assert step.depth.device.type == "meta"
    with pytest.raises(
        UserError, match=r"^data\.augment\.steps: MaxPool2d returns \(20, 3, 6, 5\) for images of shape"
    ):
        run(images, Augment(steps=[nn.MaxPool2d(2)]))
