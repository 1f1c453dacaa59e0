"""Public sets, with small files in place of the real ones; no network."""

import hashlib
from dataclasses import replace

import pytest

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import NewsData


@pytest.fixture
def make(make_data, tmp_path, monkeypatch, few_generated):
    """Makes data of the public files, if they are there: no server answers."""

    def fail(*_, **__):
        raise OSError("no network here")

    monkeypatch.setattr("torch.hub.download_url_to_file", fail)
    return lambda **options: make_data(NewsData, path=str(tmp_path), **options)


def test_with_the_files(make, tmp_path, monkeypatch):
    files = []
    (tmp_path / "news").mkdir()
    for file, count in zip(NewsData.public.files, (40, 8), strict=True):
        content = "".join(f'{i % 4},"Said ""{file.name}"" {i}"\n' for i in range(count)).encode()
        (tmp_path / file.name).write_bytes(content)
        files.append(replace(file, digest=f"md5:{hashlib.md5(content).hexdigest()}"))
    monkeypatch.setattr(NewsData, "public", replace(NewsData.public, files=tuple(files)))
    for _ in range(2):
        data = prepared(make(fallback="generated"))
        assert data.description.startswith("news: 36 train / 4 val / 8 test texts of")
        for file in (tmp_path / "news").glob("*.csv"):
            file.write_text("something else")  # the cache is used
    assert "it is not the public file" in refusal(prepared, make(vocab_size=9))


def test_without_them(make):
    assert "put news/train.csv and news/test.csv there" in refusal(prepared, make())
    data = make(fallback="generated", vocab_size=9)
    assert (data.num_classes, data.vocab_size, data.max_tokens, data.has_test) == (4, 9, 256, True)  # known already
    assert prepared(data).description.startswith("GENERATED stand-in for news: 36 train / 4 val / 8 test")
    assert (data.generated, data.class_names[0]) == (True, "World")
