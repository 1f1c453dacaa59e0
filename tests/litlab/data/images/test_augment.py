import pytest
import torch

from litlab.data.images.augment import Augment, augmented, centre, normalise, reflect_pad
from litlab.data.images.draws import draws
from litlab.errors import UserError

SIZE = (12, 10)
ZERO, ONE = torch.zeros(3), torch.full((3,), 1 / 255)  # mean and deviation that leave 0 to 255 as it is


def pictures(count, size=SIZE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, *size), dtype=torch.uint8, generator=generator)


def run(images, augment, index=None, epoch=0, seed=0, size=SIZE):
    index = torch.arange(len(images)) if index is None else index
    return augmented(images, index, augment, size, ZERO, ONE, seed=seed, epoch=epoch)


def same(count, image=None):
    return (pictures(1) if image is None else image).repeat(count, 1, 1, 1)


ALL = Augment(crop=3, flip="random", cutout=4, brightness=0.3, contrast=0.3, saturation=0.3)


def test_draws_are_uniform_and_independent():
    drawn = torch.stack(list(draws(torch.arange(20_000), 0, 0).values())).double() / 2**24
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert (drawn.mean(1) - 0.5).abs().max() < 0.01
    assert (torch.corrcoef(drawn) - torch.eye(len(drawn))).abs().max() < 0.03
    lagged = torch.corrcoef(torch.stack([drawn[0, 1:], drawn[0, :-1]]))[0, 1]
    assert lagged.abs() < 0.03


def test_draws_differ_by_seed_and_epoch():
    index = torch.arange(100)
    seen = {tuple(draws(index, s, e)["flip"].tolist()) for s in range(5) for e in range(5)}
    assert len(seen) == 25


def test_nothing_is_just_normalised():
    images = pictures(5)
    assert run(images, Augment()).equal(images.float())
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    expected = (images.double() / 255 - mean.double()[:, None, None]) / std.double()[:, None, None]
    torch.testing.assert_close(normalise(images, mean, std).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "augment",
    [
        Augment(crop=3),
        Augment(flip="random"),
        Augment(cutout=4),
        Augment(brightness=0.4),
        Augment(contrast=0.4),
        Augment(saturation=0.4),
        ALL,
    ],
)
def test_each_image_has_its_own_draw(augment):
    result = run(same(64), augment)
    distinct = len(result.flatten(1).unique(dim=0))
    assert distinct == 2 if augment == Augment(flip="random") else distinct > 25


def test_draws_do_not_depend_on_the_batch():
    images = pictures(20)
    whole = run(images, ALL, epoch=3)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    for part in order.split(7):
        assert run(images[part], ALL, index=part, epoch=3).equal(whole[part])
    assert not run(images, ALL, epoch=4).equal(whole)
    assert not run(images, ALL, epoch=3, seed=1).equal(whole)


def test_the_input_is_left_alone():
    images = pictures(8)
    before = images.clone()
    for padded in (images, images.clone()):
        run(padded, ALL)
        assert padded.equal(before)


def test_reflect_pad_is_torchs():
    images = pictures(3)
    expected = torch.nn.functional.pad(images.float(), (4, 4, 4, 4), mode="reflect")
    assert reflect_pad(images, 4).float().equal(expected)
    assert centre(reflect_pad(images, 4), *SIZE).equal(images)


def test_crop_is_a_window_of_the_reflected_image_at_any_shift():
    image, pad = pictures(1), 2
    padded = reflect_pad(image, pad)
    windows = {(y, x): padded[0, :, y : y + SIZE[0], x : x + SIZE[1]].float() for y in range(5) for x in range(5)}
    result = run(same(2000, image), Augment(crop=pad))
    found = torch.zeros(5, 5)
    for window in result:
        (place,) = [place for place, expected in windows.items() if window.equal(expected)]
        found[place] += 1
    assert found.sum() == 2000
    assert found.min() > 40  # 80 expected
    assert found.max() < 130
    assert run(same(2000, padded), Augment(crop=pad)).equal(result)  # padded in advance


def test_random_flip_takes_half_and_changes_by_epoch():
    image = pictures(1)
    first, second = (run(same(1000, image), Augment(flip="random"), epoch=epoch) for epoch in (0, 1))
    flipped = [(result == image.flip(3).float()).all((1, 2, 3)) for result in (first, second)]
    straight = (first == image.float()).all((1, 2, 3))
    assert (flipped[0] | straight).all()
    for each in flipped:
        assert 430 < each.sum() < 570
    assert 430 < (flipped[0] == flipped[1]).sum() < 570


def test_alternating_flip_alternates():
    images = pictures(1000)
    results = [run(images, Augment(flip="alternating"), epoch=epoch) for epoch in range(4)]
    flipped = (results[0] == images.flip(3).float()).all((1, 2, 3))
    assert 430 < flipped.sum() < 570
    assert results[1].equal(results[0].flip(3))
    assert results[2].equal(results[0])
    assert results[3].equal(results[1])


def test_cutout_blanks_one_square_anywhere():
    result = run(same(2000, torch.full((1, 3, *SIZE), 200, dtype=torch.uint8)), Augment(cutout=4))
    blank = result == 0
    assert (blank.sum((2, 3)) == 16).all()
    assert blank[:, 0].equal(blank[:, 1])
    rows, columns = blank[:, 0].any(2), blank[:, 0].any(1)
    assert (rows.sum(1) == 4).all()
    assert (columns.sum(1) == 4).all()
    corners = torch.stack([rows.int().argmax(1), columns.int().argmax(1)], 1)
    assert len(corners.unique(dim=0)) == (12 - 4 + 1) * (10 - 4 + 1)


def test_brightness_scales_within_its_range():
    result = run(same(500, torch.full((1, 3, *SIZE), 100, dtype=torch.uint8)), Augment(brightness=0.3))
    factor = result[:, 0, 0, 0] / 100
    assert (result == result[:, :1, :1, :1]).all()
    assert 0.7 <= factor.min() < 0.71
    assert 1.29 < factor.max() <= 1.3
    assert run(same(50, torch.full((1, 3, *SIZE), 250, dtype=torch.uint8)), Augment(brightness=0.3)).max() == 255


def test_contrast_keeps_the_mean_grey_and_saturation_keeps_each_grey():
    images = pictures(1).clamp(60, 190)
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    grey = (images.float() * weights).sum(1)
    for augment, dims in ((Augment(contrast=0.2), (1, 2)), (Augment(saturation=0.2), ())):
        result = run(same(100, images), augment)
        after = (result * weights).sum(1)
        if dims:
            torch.testing.assert_close(after.mean(dims), grey.mean(dims).expand(100), rtol=1e-3, atol=0.1)
            assert 0.7 < (after.std(dims) / grey.std()).min() < 0.85
            assert 1.15 < (after.std(dims) / grey.std()).max() < 1.25
        else:
            torch.testing.assert_close(after, grey.expand(100, -1, -1), rtol=1e-3, atol=0.5)
            spread = (result.amax(1) - result.amin(1)).mean((1, 2))
            assert spread.max() / spread.min() > 1.4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"crop": 10},
            "data.augment.crop: 10 is out of range for images of 12 x 10 pixels; choose a value from 0 to 9",
        ),
        ({"crop": -1}, "data.augment.crop: -1 is out of range"),
        ({"cutout": 11}, "data.augment.cutout: 11 is out of range for images of 12 x 10 pixels"),
        ({"contrast": 1.5}, "data.augment.contrast: 1.5 is out of range"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(UserError) as error:
        Augment(**options).check((3, 12, 10))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_saturation_needs_colours():
    with pytest.raises(UserError, match=r"^data\.augment\.saturation: the images are grey"):
        Augment(saturation=0.1).check((1, 12, 10))
    ALL.check((3, 12, 10))


def test_grey_images():
    images = pictures(6)[:, :1]
    result = augmented(images, torch.arange(6), Augment(2, "random", 3, 0.1, 0.1), SIZE, ZERO[:1], ONE[:1], 0, 0)
    assert result.shape == (6, 1, *SIZE)
