"""Public data sets, from files in torchvision's own format: its real reader runs, without a network."""

import gzip
import hashlib
import io
import pickle
import tarfile
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.datasets

from litlab.data.images import ImageData, PublicImages
from litlab.data.public import Unavailable
from tests.litlab.data.conftest import Recorder, prepared, refusal


def name_classes(count: int) -> tuple[str, ...]:
    return tuple(f"kind {number}" for number in range(count))


class Ten(ImageData):
    public = PublicImages("cifar10", "CIFAR10", ("cifar-10-python.tar.gz",), name_classes(10), (3, 32, 32))


class Hundred(ImageData):
    public = PublicImages("cifar100", "CIFAR100", ("cifar-100-python.tar.gz",), name_classes(100), (3, 32, 32))


class Digits(ImageData):
    public = PublicImages(
        "mnist", "MNIST",
        tuple(f"MNIST/raw/{part}-ubyte.gz" for part in (
            "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"
        )),
        name_classes(10), (1, 28, 28),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """No server answers, and there is little made-up data."""

    def refuse(*_, **__):
        raise urllib.error.URLError("offline")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("litlab.data.images.generated.COUNTS", {"train": 40, "test": 20})


def write_mnist(root: Path, compress=False) -> dict[str, np.ndarray]:
    """The format of MNIST: http://yann.lecun.com/exdb/mnist/."""
    random, arrays = np.random.default_rng(0), {}
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for split, count in (("train", 40), ("t10k", 10)):
        arrays[f"{split}-images-idx3-ubyte"] = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{split}-labels-idx1-ubyte"] = np.arange(count, dtype=np.uint8) % 10
    for file, array in arrays.items():
        header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
        content = header + array.tobytes()
        (folder / (file + ".gz" * compress)).write_bytes(gzip.compress(content) if compress else content)
    return arrays


def make_cifar(monkeypatch, kind: type[ImageData]) -> dict[str, bytes]:
    """The pickles of https://www.cs.toronto.edu/~kriz/cifar.html, whose checksums torchvision is told."""
    reader = getattr(torchvision.datasets, kind.public.reader)
    random, fine, files = np.random.default_rng(0), kind is Hundred, {}
    for name, _ in (*reader.train_list, *reader.test_list):
        data = random.integers(0, 256, (20, 3072), dtype=np.uint8)
        files[name] = pickle.dumps({"data": data, "fine_labels" if fine else "labels": [i % 10 for i in range(20)]})
    names = list(kind.public.class_names)
    files[reader.meta["filename"]] = pickle.dumps({"fine_label_names" if fine else "label_names": names})
    sums = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    for attribute in ("train_list", "test_list"):
        monkeypatch.setattr(reader, attribute, [[name, sums[name]] for name, _ in getattr(reader, attribute)])
    monkeypatch.setattr(reader, "meta", {**reader.meta, "md5": sums[reader.meta["filename"]]})
    return files


def write_cifar(root: Path, monkeypatch, kind=Ten) -> dict[str, bytes]:
    files = make_cifar(monkeypatch, kind)
    folder = root / ("cifar-10-batches-py" if kind is Ten else "cifar-100-python")
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return files


def test_mnist(make, tmp_path):
    arrays = write_mnist(tmp_path / "raw")
    data = prepared(make(tmp_path / "raw", Digits, fallback="generated"))
    assert data.description == "mnist: 36 train / 4 val / 10 test images of 1 x 28 x 28, 10 classes"
    batch = data.samples("test")[torch.arange(10)]
    np.testing.assert_array_equal(batch["image"][:, 0], arrays["t10k-images-idx3-ubyte"])
    assert batch["label"].tolist() == list(range(10))
    # Brought to another format; and from the cache, once the files are gone.
    data = make(tmp_path / "raw", Digits, mode="RGB", image_size=(32, 32))
    data.prepare_data()
    for file in (tmp_path / "raw").rglob("*-ubyte"):
        file.unlink()
    assert prepared(data).samples("test").images.shape == (10, 3, 32, 32)


@pytest.mark.parametrize("kind", [Ten, Hundred])
def test_cifar(make, tmp_path, monkeypatch, kind):
    files = write_cifar(tmp_path / "raw", monkeypatch, kind)
    data = prepared(make(tmp_path / "raw", kind))
    expected = pickle.loads(files["test_batch" if kind is Ten else "test"])["data"].reshape(-1, 3, 32, 32)
    np.testing.assert_array_equal(data.samples("test")[torch.arange(20)]["image"], expected)
    assert data.class_names == list(kind.public.class_names)


def test_archives_that_the_user_put_there_are_unpacked(tmp_path, monkeypatch):
    files = make_cifar(monkeypatch, Ten)
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    md5 = hashlib.md5((tmp_path / "cifar-10-python.tar.gz").read_bytes()).hexdigest()
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "tgz_md5", md5)
    write_mnist(tmp_path, compress=True)
    raw = tmp_path / "MNIST/raw"
    resources = [
        (name, hashlib.md5((raw / name).read_bytes()).hexdigest()) for name, _ in torchvision.datasets.MNIST.resources
    ]
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", resources)
    for kind, count in ((Ten, 120), (Digits, 50)):
        kind.public.download(tmp_path)
        images, labels, given = kind.public.read(tmp_path)
        assert len(images) == len(labels) == len(given) == count
    assert not list(tmp_path.glob(".download-*"))
    kept = (tmp_path / "cifar-10-batches-py/data_batch_1").stat()
    Ten.public.download(tmp_path)
    assert (tmp_path / "cifar-10-batches-py/data_batch_1").stat() == kept, "what is whole stays"


def test_nothing_there(make, make_trainer, tmp_path, capsys):
    root = tmp_path / "raw"
    assert refusal(make(root, Ten).prepare_data) == (
        f"cifar10: it is not in {root}/ and can't be downloaded (<urlopen error offline>); put "
        "cifar-10-python.tar.gz there, use your own data (--data.dataset folder --data.path DIR), or made-up data "
        "(--data.fallback generated)"
    )
    data, model = make(root, Ten, fallback="generated"), Recorder()
    assert data.class_names[0] == "kind 0"
    trainer = make_trainer()
    trainer.fit(model, data)
    assert "GENERATED DATA" in capsys.readouterr().err
    assert data.description.startswith(
        "GENERATED stand-in for cifar10: 36 train / 4 val / 20 test images of 3 x 32 x 32"
    )
    assert data.state_dict()["generated"] is True
    other = make(root, Ten, fallback="generated")
    other.trainer = make_trainer()
    other.trainer.strategy.broadcast = lambda mine: True  # another process says so
    other.setup("fit")
    assert (other.generated, other.class_names) == (True, data.class_names)


@pytest.mark.parametrize("kind", [Ten, Digits])
def test_half_a_file_is_never_taken_for_whole(make, tmp_path, monkeypatch, kind):
    if kind is Digits:
        write_mnist(tmp_path / "raw")
    else:
        write_cifar(tmp_path / "raw", monkeypatch)
    data = make(tmp_path / "raw", kind)
    file = max((path for path in (tmp_path / "raw").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:-100])
    assert refusal(data.prepare_data).startswith(
        f"{data.public.name}: it is not in {tmp_path}/raw/ and can't be download"
    )


def test_a_download_that_fails_leaves_nothing(tmp_path, monkeypatch):
    with pytest.raises(Unavailable, match="offline"):
        Ten.public.download(tmp_path / "raw")
    assert [path.name for path in (tmp_path / "raw").iterdir()] == [".lock"]
