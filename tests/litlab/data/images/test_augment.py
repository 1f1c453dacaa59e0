"""Random changes to whole batches, each image with its own draw."""

from types import SimpleNamespace

import torch

from litlab.data.images import Augment
from litlab.data.images.augment import augment_batch, reflect_pad, uniform

SIZE = (12, 10)


ALL = Augment(3, "random", 4)


def pictures(count, size=SIZE):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, *size), dtype=torch.uint8, generator=generator)


def run(images, augment, index=None, epoch=0, seed=0):
    """Without normalisation."""
    index = torch.arange(len(images)) if index is None else index
    serving = SimpleNamespace(
        encode=lambda some: some.float().clone(), metadata=SimpleNamespace(image_shape=(3, *SIZE))
    )
    return augment_batch(images, index, augment, serving, seed=seed, epoch=epoch)


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
