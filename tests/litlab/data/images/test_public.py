"""Public data sets, from files in torchvision's own format: its real reader runs, without a
network.
"""

from pathlib import Path
from unittest.mock import Mock
from urllib.error import URLError

import numpy as np

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import Digits, make


def write_digits(root: Path) -> np.ndarray:
    """Write files in the format of MNIST, http://yann.lecun.com/exdb/mnist/; the images to test
    on.
    """
    folder, images = root / "MNIST/raw", np.empty(0)
    folder.mkdir(parents=True)
    for split, count in (("train", 40), ("t10k", 10)):
        images = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            (folder / f"{split}-{name}-ubyte").write_bytes(header + array.tobytes())
    return images


def test_files_that_are_there_are_used_and_later_the_cache(monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", Mock(side_effect=URLError("offline")))
    root = Path("raw")
    digits = write_digits(root)
    for _ in range(2):
        data = prepared(make(root, Digits, fallback="generated"))
        assert data.description.startswith("mnist: 36 train / 4 val / 10 test images of 1 x 28 x ")
        np.testing.assert_array_equal(data.samples("test").images[:, 0], digits)
        assert data.labels("test").tolist() == list(range(10))
        for file in root.rglob("*-ubyte"):
            file.write_bytes(file.read_bytes()[:-100])
    # Half a file is never taken for whole.
    assert refusal(make(root, Digits, mode="RGB").prepare_data).startswith("mnist: it is not in ")


def test_a_path_that_leads_nowhere_is_never_that_of_the_public_set():
    assert "there is no file" in refusal(make("my.photos", Digits).survey)
    data = make("deep/er", Digits, fallback="generated")
    for action in (data.survey, data.prepare_data):
        assert refusal(action).startswith("data.path: there is no deep/er; correct it")
