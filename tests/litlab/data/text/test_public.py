"""Public sets, with small files in place of the real ones; no network."""

import hashlib
from dataclasses import replace

import pytest

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import NewsData


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    def fail(*_, **__):
        raise OSError("no network here")

    monkeypatch.setattr("torch.hub.download_url_to_file", fail)


def test_with_the_files_and_then_without(make_data, tmp_path, monkeypatch):
    files = []
    (tmp_path / "news").mkdir()
    for file, count in zip(NewsData.public.files, (40, 8), strict=True):
        content = "".join(f'{i % 4},"Said ""{file.name}"" {i}"\n' for i in range(count)).encode()
        (tmp_path / file.name).write_bytes(content)
        files.append(replace(file, digest=f"md5:{hashlib.md5(content).hexdigest()}"))
    monkeypatch.setattr(NewsData, "public", replace(NewsData.public, files=tuple(files)))
    for _ in range(2):
        data = prepared(make_data(NewsData, path=str(tmp_path), fallback="generated"))
        assert data.description.startswith("news: 36 train / 4 val / 8 test texts of")
        for file in (tmp_path / "news").glob("*.csv"):
            file.write_text("something else")
    news = make_data(NewsData, path=str(tmp_path), vocab_size=9)
    assert "it is not the public file" in refusal(prepared, news)


def test_without_files_or_network(make_data, tmp_path, few_generated):
    message = refusal(prepared, make_data(NewsData, path=str(tmp_path)))
    assert "put news/train.csv and news/test.csv there" in message
    data = prepared(make_data(NewsData, path=str(tmp_path), fallback="generated"))
    assert (data.generated, data.class_names[0]) == (True, "World")
    assert data.description.startswith("GENERATED stand-in for news: 36 train / 4 val / 8 test")
