"""A public set of texts, with small files in place of the real ones; no network."""

import hashlib

import pandas as pd

from litlab.data import PublicFile, TextData
from litlab.data.text import PublicTexts
from tests.litlab.data.conftest import prepared, refusal


def read_news(root):
    parts = {split: pd.read_csv(root / f"{split}.csv", names=["label", "text"]) for split in ("train", "test")}
    return pd.concat([part.assign(split=split) for split, part in parts.items()])


class NewsData(TextData):
    public = PublicTexts("news", (), ("World", "Sports", "Business", "Sci/Tech"), read_news)


def test_the_files_are_checked_read_and_later_the_cache(tmp_path, monkeypatch, few_generated):
    files, settings = [], {"path": str(tmp_path), "cache_dir": str(tmp_path / "cache"), "fallback": "generated"}
    for name, count in (("train.csv", 40), ("test.csv", 8)):
        content = "".join(f'{i % 4},"Said ""{name}"" {i}"\n' for i in range(count)).encode()
        (tmp_path / name).write_bytes(content)
        files.append(PublicFile("file:///gone", name, f"md5:{hashlib.md5(content).hexdigest()}"))
    monkeypatch.setattr(NewsData, "public", PublicTexts("news", tuple(files), NewsData.public.class_names, read_news))
    for _ in range(2):
        data = NewsData(**settings, vocab_size=9)
        facts = data.num_classes, data.vocab_size, data.max_tokens, data.has_test  # known before it is prepared
        assert facts == (4, 9, 256, True)
        assert prepared(data).description.startswith("news: 36 train / 4 val / 8 test texts of")
        for file in tmp_path.glob("*.csv"):
            file.write_text("something else")
    assert "it is not the public file" in refusal(prepared, NewsData(**settings))
    for file in tmp_path.glob("*.csv"):
        file.unlink()
    data = prepared(NewsData(**settings))
    assert data.description.startswith("GENERATED stand-in for news: 36 train / 4 val / 8 test")
    assert (data.generated, data.class_names[0]) == (True, "World")
