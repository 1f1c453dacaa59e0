"""Random changes to whole batches, each image with its own draw."""

import pytest
import torch
from torchvision.transforms.v2.functional import adjust_brightness, adjust_contrast

from litlab.data import Augment, ImageData
from litlab.data.draws import uniform

SIZE = (12, 10)


def pictures(count):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, *SIZE), dtype=torch.uint8, generator=generator)


def run(images, augment, index=None, epoch=0, seed=0):
    """Training images as a model gets them, with the values that they have in a file."""
    data, channels = ImageData("generated", augment=augment, seed=seed), images.shape[1]
    facts = {"mean": [0.0] * channels, "std": [1 / 255] * channels}
    data.load_state_dict(data.facts.state_dict() | facts | {"image_shape": (channels, *SIZE)})
    index = torch.arange(len(images)) if index is None else index
    return data.transform({"image": images, "index": index}, epoch).round()


def test_draws_do_not_depend_on_the_batch_and_the_input_is_left_alone():
    images, everything = pictures(20), Augment(3, "random", 4, 0.4, 0.4)
    before, whole = images.clone(), run(images, everything, epoch=3)
    assert images.equal(before)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    for part in order.split(7):
        assert run(images[part], everything, index=part, epoch=3).equal(whole[part])
    assert not run(images, everything, epoch=4).equal(whole)
    assert not run(images, everything, epoch=3, seed=1).equal(whole)


def test_crop_is_a_window_of_the_reflected_image_at_any_shift():
    image = pictures(1)
    padded = torch.nn.functional.pad(image.float(), (2, 2, 2, 2), mode="reflect")
    windows = (
        padded[0].unfold(1, SIZE[0], 1).unfold(2, SIZE[1], 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
    )
    result = run(image.repeat(2000, 1, 1, 1), Augment(crop=2))
    counts = torch.stack([(result == window).flatten(1).all(1).sum() for window in windows])
    assert counts.sum() == 2000
    assert 40 < counts.min() <= counts.max() < 130  # 80 expected
    # Padded in advance
    assert run(padded.to(torch.uint8).repeat(2000, 1, 1, 1), Augment(crop=2)).equal(result)


def test_flips():
    images = pictures(1000)
    mirrored = images.flip(3).float()
    flipped = [
        (run(images, Augment(flip="random"), epoch=epoch) == mirrored).all((1, 2, 3))
        for epoch in (0, 1)
    ]
    results = [run(images, Augment(flip="alternating"), epoch=epoch) for epoch in range(3)]
    for each in (*flipped, flipped[0] == flipped[1], (results[0] == mirrored).all((1, 2, 3))):
        assert 430 < each.sum() < 570
    assert results[1].equal(results[0].flip(3))
    assert results[2].equal(results[0])


def test_cutout_blanks_one_square_anywhere():
    blank = run(torch.full((2000, 3, *SIZE), 200, dtype=torch.uint8), Augment(cutout=4)) == 0
    assert (blank.sum((2, 3)) == 16).all()
    assert (blank[:, 0].any(2).sum(1) == 4).all()
    assert len(blank.flatten(1).unique(dim=0)) == (12 - 4 + 1) * (10 - 4 + 1)


@pytest.mark.parametrize("channels", [3, 1])
def test_brightness_and_contrast_are_those_of_torchvision_with_factors_of_each_image(channels):
    images, index = pictures(500)[:, :channels], torch.arange(500)
    brightness, contrast = uniform(index, 0, 2, "brightness", "contrast")
    # From 1 - 1.5 on, but never below 0
    brightness, contrast = 0.6 + 0.8 * brightness, 2.5 * contrast
    assert contrast.min() < 0.1 < 2.4 < contrast.max()
    result = run(images, Augment(brightness=0.4, contrast=1.5), epoch=2)
    for image, bright, far, changed in zip(images / 255, brightness, contrast, result, strict=True):
        expected = adjust_contrast(adjust_brightness(image, bright.item()), far.item())
        assert (255 * expected - changed).abs().max() < 0.51
