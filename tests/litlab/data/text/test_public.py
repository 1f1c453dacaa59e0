"""A public set of texts, with a small file in place of the real ones; no network."""

import hashlib
from pathlib import Path

import pandas as pd

from litlab.data import PublicFile, PublicTexts, TextData, generated
from tests.litlab.data.conftest import a_rank, prepared, refusal

CONTENT = "".join(
    f'{i % 4},"Said ""it"" {i}",{"train" if i % 6 else "test"}\n' for i in range(48)
).encode()


class NewsData(TextData):
    public = PublicTexts(
        "news",
        (PublicFile("file:///gone", "news.csv", f"md5:{hashlib.md5(CONTENT).hexdigest()}"),),
        ("World", "Sports", "Business", "Sci/Tech"),
        lambda root: pd.read_csv(root / "news.csv", names=["label", "text", "split"]),
    )  # fmt: skip


def test_a_file_that_is_there_is_used_and_made_up_texts_take_its_place(monkeypatch, capsys):
    monkeypatch.setattr(generated, "TEXTS", {"train": 40, "test": 8})
    file = Path("data/news.csv")
    file.parent.mkdir()
    file.write_bytes(CONTENT)
    data = NewsData(vocab_size=9)
    # Known before it is prepared
    assert (data.num_classes, data.vocab_size, data.has_test) == (4, 9, True)
    assert prepared(data).description.startswith("news: 36 train / 4 val / 8 test texts of")
    file.unlink()
    line = "news: it is not in data/ and can't be downloaded"
    assert refusal(prepared, NewsData()).startswith(line)
    data = prepared(NewsData(fallback="generated"))
    assert "GENERATED DATA" in capsys.readouterr().err
    assert data.description.startswith("GENERATED stand-in for news: 36 train / 4 val / 8 test")
    assert (data.generated, data.class_names[0]) == (True, "World")
    file.write_bytes(CONTENT)
    other = NewsData(fallback="generated")
    other.trainer = a_rank(0)
    other.trainer.strategy.broadcast = lambda mine: True  # another process says so
    other.setup("fit")
    assert other.generated
