"""What is said of a batch."""

import torch

from litlab.callbacks.batches import describe, not_finite

IMAGES, LABELS = torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64)


def test_types_and_shapes_with_the_names_that_there_are():
    assert describe((IMAGES, LABELS)) == "float32 (2, 3, 4, 4), int64 (2,)"
    assert describe([{"ids": LABELS, "evidence": IMAGES.half()}, LABELS]) == (
        "ids int64 (2,), evidence float16 (2, 3, 4, 4), int64 (2,)"
    )
    assert describe("text") == ""


def test_tensors_that_are_not_finite():
    bad = IMAGES.clone()
    bad[0, 0, 0, 0] = torch.inf
    assert not_finite((IMAGES, LABELS)) == ""
    assert not_finite((LABELS, bad)) == "tensor 1"
    assert not_finite({"past": bad, "future": bad * torch.nan, "calendar": IMAGES}) == "past, future"
