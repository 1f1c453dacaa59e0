"""Public sets, with small files in place of the real ones; no network."""

import hashlib
from dataclasses import replace

import pytest

from litlab.data import download
from litlab.errors import UserError
from tests.litlab.data.text.conftest import PUBLIC_SETS, TextRecorder


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    def fail(urls, seconds):
        raise download.Unavailable("no network here")

    monkeypatch.setattr(download, "reach", fail)


def pretend(monkeypatch, name, root):
    """Make the files in `root` the ones that are expected."""
    known = PUBLIC_SETS[name]
    files = tuple(
        replace(file, digest="md5:" + hashlib.md5((root / file.name).read_bytes()).hexdigest()) for file in known.files
    )
    monkeypatch.setitem(PUBLIC_SETS, name, replace(known, files=files))


@pytest.fixture
def news(tmp_path, monkeypatch):
    (tmp_path / "news").mkdir()
    for split, count in (("train", 40), ("test", 8)):
        rows = [f'{i % 4},"Said ""{split}"" {i}"\n' for i in range(count)]
        (tmp_path / "news" / f"{split}.csv").write_text("".join(rows), encoding="utf-8")
    pretend(monkeypatch, "news", tmp_path)
    return tmp_path


def test_through_a_run_and_then_without_the_files(news, make_data, make_trainer):
    for _ in range(2):
        data = make_data(dataset="news", path=str(news), fallback="generated")
        make_trainer().fit(TextRecorder(), data)
        assert data.description.startswith("news: 36 train / 4 val / 8 test texts of")
        assert not data.generated
        for file in (news / "news").glob("*.csv"):
            file.unlink()


def test_missing_files_without_a_fallback(make_data, tmp_path):
    data = make_data(dataset="films", path=str(tmp_path))
    with pytest.raises(UserError) as error:
        data.prepare_data()
    assert str(error.value) == (
        f"films is not in {tmp_path}/ and can't be downloaded (no network here): put news/train.csv "
        f"and news/test.csv into {tmp_path}/, or use your own data (--data.dataset csv --data.path FILE), or "
        "made-up data (--data.fallback generated)"
    )


@pytest.mark.parametrize(("name", "classes"), [("news", 4), ("films", 2)])
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
    (news / "news" / "train.csv").write_text("something else")
    with pytest.raises(UserError, match="not the public file"):
        make_data(dataset="news", path=str(news), fallback="generated").prepare_data()
