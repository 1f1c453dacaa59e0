"""AG News and IMDB: small files in their formats in place of the real ones."""

import shutil

from project.data.ag_news import AGNewsData
from project.data.imdb import IMDBData


def test_ag_news(tmp_path):
    (tmp_path / "ag_news").mkdir()
    for split, count in (("train", 40), ("test", 8)):
        rows = [f'"{i % 4 + 1}","Title {i}","Said ""{split}"" \\ {i}"\n' for i in range(count)]
        (tmp_path / f"ag_news/{split}.csv").write_text("".join(rows))
    frame = AGNewsData.public.read(tmp_path)
    assert frame["text"][43] == 'Title 3 Said "test" \\ 3'
    assert frame["split"].tolist() == ["train"] * 40 + ["test"] * 8
    assert frame["label"].tolist() == [0, 1, 2, 3] * 12


def test_imdb_is_read_from_the_archive(tmp_path):
    for split, count in (("test", 4), ("train", 12)):
        for label in ("pos", "neg", "unsup"):
            folder = tmp_path / "aclImdb" / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}_{i % 10}.txt").write_text(f"{split} {label} {i} é", "utf-8")
    (tmp_path / "aclImdb/train/urls_pos.txt").touch()
    shutil.make_archive(str(tmp_path / "aclImdb_v1"), "gztar", tmp_path, "aclImdb")
    frame = IMDBData.public.read(tmp_path)
    train = frame[frame["split"] == "train"]
    assert train["text"].tolist() == [
        f"train {folder} {i} é" for folder in ("neg", "pos") for i in range(12)
    ]
    assert train["label"].tolist() == [0] * 12 + [1] * 12
    assert frame["split"].value_counts().to_dict() == {"train": 24, "test": 8}
