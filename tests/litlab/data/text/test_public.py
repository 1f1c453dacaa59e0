"""Public sets, with small files in place of the real ones; no network."""

import hashlib
import io
import tarfile
from dataclasses import replace

import pytest
import torch

from litlab.data import download
from litlab.data.text import public
from litlab.errors import UserError
from tests.litlab.data.text.conftest import TextRecorder


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    def fail(urls, seconds):
        raise download.Unavailable("no network here")

    monkeypatch.setattr(download, "reach", fail)


def pretend(monkeypatch, name, root):
    """Make the files in `root` the ones that are expected."""
    known = public.PUBLIC_SETS[name]
    files = tuple(
        replace(file, digest="md5:" + hashlib.md5((root / file.name).read_bytes()).hexdigest()) for file in known.files
    )
    monkeypatch.setitem(public.PUBLIC_SETS, name, replace(known, files=files))


@pytest.fixture
def news(tmp_path, monkeypatch):
    (tmp_path / "ag_news").mkdir()
    for split, count in (("train", 40), ("test", 8)):
        rows = [f'"{i % 4 + 1}","Title {i}","Said ""{split}"" \\ {i}"\n' for i in range(count)]
        (tmp_path / "ag_news" / f"{split}.csv").write_text("".join(rows), encoding="utf-8")
    pretend(monkeypatch, "ag_news", tmp_path)
    return tmp_path


@pytest.fixture
def imdb(tmp_path, monkeypatch):
    with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz") as archive:
        for split, count in (("test", 4), ("train", 12)):
            for folder in ("pos", "neg", "unsup"):
                for i in reversed(range(count)):
                    content = f"{split} {folder} {i} é".encode()
                    member = tarfile.TarInfo(f"aclImdb/{split}/{folder}/{i}_{i % 10}.txt")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        member = tarfile.TarInfo("aclImdb/train/urls_pos.txt")
        archive.addfile(member)
    pretend(monkeypatch, "imdb", tmp_path)
    return tmp_path


def test_ag_news(news):
    corpus = public.read("ag_news", news)
    assert corpus.class_names == ["World", "Sports", "Business", "Sci/Tech"]
    assert corpus.texts["test"][3] == 'Title 3 Said "test" \\ 3'
    assert {split: len(texts) for split, texts in corpus.texts.items()} == {"train": 40, "test": 8}
    assert corpus.labels["train"].equal(torch.arange(40) % 4)


def test_imdb_is_read_from_the_archive(imdb):
    corpus = public.read("imdb", imdb)
    assert corpus.class_names == ["negative", "positive"]
    assert corpus.texts["train"] == [f"train {folder} {i} é" for folder in ("neg", "pos") for i in range(12)]
    assert corpus.labels["train"].tolist() == [0] * 12 + [1] * 12
    assert len(corpus.texts["test"]) == 8
    assert {path.name for path in imdb.iterdir()} == {"aclImdb_v1.tar.gz"}


def test_the_checksums_are_the_published_ones():
    digests = [file.digest for known in public.PUBLIC_SETS.values() for file in known.files]
    assert digests == [
        "md5:b1a00f826fdfbd249f79597b59e1dc12",
        "md5:d52ea96a97a2d943681189a97654912d",
        "md5:7c2ac02c03563afcf9b574c7e56c153a",
    ]


def test_through_a_run_and_then_without_the_files(news, make_data, make_trainer):
    for _ in range(2):
        data = make_data(dataset="ag_news", path=str(news), fallback="generated")
        make_trainer().fit(TextRecorder(), data)
        assert data.description.startswith("ag_news: 36 train / 4 val / 8 test texts of")
        assert not data.generated
        for file in (news / "ag_news").glob("*.csv"):
            file.unlink()


def test_missing_files_without_a_fallback(make_data, tmp_path):
    data = make_data(dataset="imdb", path=str(tmp_path))
    with pytest.raises(UserError) as error:
        data.prepare_data()
    assert str(error.value) == (
        f"imdb is not in {tmp_path}/ and can't be downloaded (no network here): put aclImdb_v1.tar.gz into "
        f"{tmp_path}/, or use your own data (--data.dataset csv --data.path FILE), or made-up data "
        "(--data.fallback generated)"
    )


@pytest.mark.parametrize(("name", "classes"), [("ag_news", 4), ("imdb", 2)])
def test_fallback_is_loud(make_data, make_trainer, tmp_path, capsys, monkeypatch, name, classes):
    monkeypatch.setattr("litlab.data.text.sources._GENERATED", {"train": 40, "test": 8})
    data = make_data(dataset=name, path=str(tmp_path), fallback="generated")
    assert not data.generated
    assert data.num_classes == classes
    trainer = make_trainer()
    trainer.fit(TextRecorder(), data)
    assert data.generated
    assert data.num_classes == classes
    assert data.description.startswith(f"GENERATED stand-in for {name}: 36 train / 4 val / 8 test")
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"{name} is not here and can't be downloaded (no network here)" in said
    assert "GENERATED" in said


def test_other_files_of_that_name_are_refused(news, make_data):
    (news / "ag_news" / "train.csv").write_text("something else")
    with pytest.raises(UserError, match="not the public file"):
        make_data(dataset="ag_news", path=str(news), fallback="generated").prepare_data()
