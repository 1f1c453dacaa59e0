"""Public data sets, from files in torchvision's own format: its real reader runs, without a network."""

import gzip
import hashlib
import io
import pickle
import tarfile
import threading
import time
import urllib.error

import numpy as np
import pytest
import torch
import torchvision.datasets
from litlab.data.download import Unavailable

from litlab.data.images import public
from litlab.errors import UserError
from tests.litlab.data.conftest import Recorder
from tests.litlab.data.images.conftest import PUBLIC_SETS


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No server answers."""

    def refuse(request, **_):
        raise urllib.error.URLError("offline")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


@pytest.fixture(autouse=True)
def _few_generated(monkeypatch):
    monkeypatch.setattr("litlab.data.images.sources._GENERATED", {"train": 40, "test": 20})


def idx(array: np.ndarray) -> bytes:
    """The format of MNIST: http://yann.lecun.com/exdb/mnist/."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(root, compress=False) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arrays = {}
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for split, count in (("train", 40), ("t10k", 10)):
        arrays[f"{split}-images-idx3-ubyte"] = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{split}-labels-idx1-ubyte"] = np.arange(count, dtype=np.uint8) % 10
    for file, array in arrays.items():
        content = idx(array)
        (folder / (file + ".gz" * compress)).write_bytes(gzip.compress(content) if compress else content)
    return arrays


def cifar_files(fine: bool) -> dict[str, bytes]:
    """The pickles of https://www.cs.toronto.edu/~kriz/cifar.html: rows of red, then green, then blue."""
    random = np.random.default_rng(0)
    names = ["train", "test"] if fine else [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    files = {}
    for name in names:
        labels = [i % 10 for i in range(20)]
        data = random.integers(0, 256, (20, 3072), dtype=np.uint8)
        files[name] = pickle.dumps({"data": data, "fine_labels" if fine else "labels": labels})
    names = list(PUBLIC_SETS["cifar100" if fine else "cifar10"].class_names)
    files["meta" if fine else "batches.meta"] = pickle.dumps({"fine_label_names" if fine else "label_names": names})
    return files


def trust(monkeypatch, reader, files: dict[str, bytes]) -> None:
    """Replace the checksums of the real files, which torchvision insists on, by those of ours."""

    def md5(content: bytes) -> str:
        return hashlib.md5(content).hexdigest()

    for attribute in ("train_list", "test_list"):
        entries = [[name, md5(files[name])] for name, _ in getattr(reader, attribute)]
        monkeypatch.setattr(reader, attribute, entries)
    monkeypatch.setattr(reader, "meta", {**reader.meta, "md5": md5(files[reader.meta["filename"]])})


def write_cifar(root, monkeypatch, name="cifar10"):
    reader = torchvision.datasets.CIFAR100 if name == "cifar100" else torchvision.datasets.CIFAR10
    files = cifar_files(fine=name == "cifar100")
    trust(monkeypatch, reader, files)
    folder = root / PUBLIC_SETS[name].folder
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return files


def test_mnist(make_data, tmp_path):
    dataset, arrays = "mnist", write_mnist(tmp_path / "raw")
    data = make_data(dataset=dataset, path=str(tmp_path / "raw"), fallback="generated")
    data.prepare_data()
    data.setup()
    assert not data.generated
    assert data.description == f"{dataset}: 36 train / 4 val / 10 test images of 1 x 28 x 28, 10 classes"
    batch = data.samples("test")[torch.arange(10)]
    np.testing.assert_array_equal(batch["image"][:, 0], arrays["t10k-images-idx3-ubyte"])
    assert batch["label"].tolist() == list(range(10))
    # Brought to another format; and from the cache, once the files are gone.
    data = make_data(dataset=dataset, path=str(tmp_path / "raw"), mode="RGB", image_size=(32, 32))
    data.prepare_data()
    for file in (tmp_path / "raw").rglob("*-ubyte"):
        file.unlink()
    data.prepare_data()
    data.setup()
    assert data.samples("test").images.shape == (10, 3, 32, 32)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_cifar(make_data, tmp_path, monkeypatch, dataset):
    files = write_cifar(tmp_path / "raw", monkeypatch, dataset)
    data = make_data(dataset=dataset, path=str(tmp_path / "raw"))
    data.prepare_data()
    data.setup()
    expected = pickle.loads(files["test_batch" if dataset == "cifar10" else "test"])["data"].reshape(-1, 3, 32, 32)
    np.testing.assert_array_equal(data.samples("test")[torch.arange(20)]["image"], expected)
    assert data.class_names == list(PUBLIC_SETS[dataset].class_names)


def test_an_archive_that_the_user_put_there_is_unpacked(tmp_path, monkeypatch):
    files = cifar_files(fine=False)
    trust(monkeypatch, torchvision.datasets.CIFAR10, files)
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    md5 = hashlib.md5((tmp_path / "cifar-10-python.tar.gz").read_bytes()).hexdigest()
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "tgz_md5", md5)
    PUBLIC_SETS["cifar10"].ensure_downloaded(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]
    assert len(PUBLIC_SETS["cifar10"].read(tmp_path)["train"][1]) == 100


def test_archives_of_mnist_are_unpacked(tmp_path, monkeypatch):
    write_mnist(tmp_path, compress=True)
    resources = [
        (name, hashlib.md5((tmp_path / "MNIST" / "raw" / name).read_bytes()).hexdigest())
        for name, _ in torchvision.datasets.MNIST.resources
    ]
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", resources)
    PUBLIC_SETS["mnist"].ensure_downloaded(tmp_path)
    assert len(PUBLIC_SETS["mnist"].read(tmp_path)["train"][1]) == 40


def test_nothing_there_and_no_fallback(make_data, tmp_path):
    data = make_data(path=str(tmp_path / "raw"))
    with pytest.raises(UserError) as error:
        data.prepare_data()
    root = tmp_path / "raw"
    assert str(error.value) == (
        f"cifar10 is not in {root}/ and can't be downloaded (www.cs.toronto.edu: offline): put cifar-10-python.tar.gz "
        f"into {root}/, or use your own data (--data.dataset folder --data.path DIR), or made-up data "
        f"(--data.fallback generated)"
    )
    assert not list((tmp_path / "cache").glob("[!.]*"))


def test_a_file_in_place_of_the_folder_is_not_passed_over(make_data, tmp_path):
    (tmp_path / "raw").touch()
    with pytest.raises(UserError, match=r"^data\.path: .*/raw is not a folder; name the one that cifar10 is in, or is"):
        make_data(path=str(tmp_path / "raw"), fallback="generated").prepare_data()


def test_fallback_says_so(make_data, make_trainer, tmp_path, capsys):
    data, model = make_data(path=str(tmp_path / "raw"), fallback="generated"), Recorder()
    assert data.class_names[0] == "airplane"
    trainer = make_trainer()
    trainer.fit(model, data)
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "GENERATED DATA" in said
    assert "cifar10 is not here and can't be downloaded (www.cs.toronto.edu: offline)" in said
    assert "This run uses GENERATED data" in said
    assert data.generated
    assert data.description.startswith(
        "GENERATED stand-in for cifar10: 36 train / 4 val / 20 test images of 3 x 32 x 32"
    )
    assert "airplane" not in data.class_names
    assert data.state_dict()["generated"] is True
    trainer.test(model, data, verbose=False)
    assert "GENERATED DATA" not in capsys.readouterr().err  # decided once


def test_the_second_command_says_it_in_one_line(make_data, tmp_path, capsys):
    for _ in range(2):  # as `fit --check` and `fit` do
        capsys.readouterr()
        make_data(path=str(tmp_path / "raw"), fallback="generated").prepare_data()
    assert capsys.readouterr().err == (
        "GENERATED DATA again, as cifar10 can't be downloaded (www.cs.toronto.edu: offline): the results say nothing "
        "about cifar10.\n"
    )


def test_no_fallback_while_the_data_is_there(make_data, tmp_path, monkeypatch):
    write_cifar(tmp_path / "raw", monkeypatch)
    data = make_data(path=str(tmp_path / "raw"), fallback="generated")
    data.prepare_data()
    assert not data.generated


def test_damaged_files_are_no_reason_for_a_fallback(make_data, tmp_path, monkeypatch):
    write_cifar(tmp_path / "raw", monkeypatch)
    folder = tmp_path / "raw" / "cifar-10-batches-py"
    (folder / "data_batch_3").write_bytes(b"rubbish")
    data = make_data(path=str(tmp_path / "raw"), fallback="generated")
    with pytest.raises(UserError) as error:
        data.prepare_data()
    assert str(error.value) == (
        f"{folder}: files are missing or damaged, and can't be downloaded again (www.cs.toronto.edu: offline); "
        f"delete the folder, or replace it by an intact copy"
    )


def test_the_decision_does_not_wait_for_a_server_that_hangs(tmp_path, monkeypatch):
    end = threading.Event()

    def hang(request, **_):
        end.wait(20)
        raise OSError

    monkeypatch.setattr("urllib.request.urlopen", hang)
    start = time.monotonic()
    with pytest.raises(Unavailable, match="no answer"):
        PUBLIC_SETS["mnist"].ensure_downloaded(tmp_path, seconds=0.1)
    assert time.monotonic() - start < 5
    end.set()


def test_a_download_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(public, "reach", lambda urls, seconds: None)
    with pytest.raises(Unavailable, match="offline"):
        PUBLIC_SETS["cifar10"].ensure_downloaded(tmp_path / "raw")
    assert list((tmp_path / "raw").iterdir()) == []


def test_other_processes_hear_of_the_decision(make_data, make_trainer, tmp_path):
    data = make_data(path=str(tmp_path / "raw"), fallback="generated")
    data.prepare_data()
    other = make_data(path=str(tmp_path / "raw"), fallback="generated")
    other.trainer = make_trainer()
    other.trainer.strategy.broadcast = lambda mine: data.generated  # rank 0 says so
    other.setup("fit")
    assert other.generated
    assert other.class_names == data.class_names
