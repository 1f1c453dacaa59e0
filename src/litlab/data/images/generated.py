"""Pictures made by arithmetic, for machines without data: they look nothing like photographs, but must be learned.

A class is a pattern of squares, the same in the mirror. All else is drawn at random and says nothing of the class: its
place, its colours and those around it, which of light and dark are swapped, noise.
"""

import numpy as np

COUNTS = {"train": 10_000, "test": 2_000}


def make_images(num_classes: int, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make images; the same for the same arguments.

    Args:
        num_classes: Number of classes, 2 or more; all come equally often.
        shape: (channel, height, width), of 4 x 4 pixels or more.

    Returns:
        uint8 images, (image, height, width, channel), or (image, height, width) with one channel; int64 labels,
        (image,); and their split, str (image,).
    """
    random = np.random.default_rng(0)
    channels, height, width = shape
    given = np.repeat(list(COUNTS), list(COUNTS.values()))
    labels = random.permutation(len(given)) % num_classes

    # A pattern is half as high and wide as an image. All have the same values, each in another order.
    values = np.tile(np.linspace(-0.15, 0.15, 8), (num_classes, 1))
    patterns = random.permuted(values, axis=1).reshape(-1, 4, 2)[:, :, [0, 1, 1, 0]]
    patterns = np.kron(patterns, np.ones((1, height // 8 or 1, width // 8 or 1)))
    high, wide = patterns.shape[1:]

    images = np.empty((len(given), *shape), np.uint8)
    for image, label in zip(images, labels, strict=True):
        pixels = random.uniform(0.3, 0.7, (channels, 1, 1)) + 0.1 * random.standard_normal(shape, np.float32)
        sign = 2 * random.integers(2, size=(channels, 1, 1)) - 1
        y, x = random.integers((height - high + 1, width - wide + 1))
        pixels[:, y : y + high, x : x + wide] += sign * patterns[label]
        image[:] = (255 * pixels).clip(0, 255)
    return images.transpose(0, 2, 3, 1).squeeze(), labels, given
