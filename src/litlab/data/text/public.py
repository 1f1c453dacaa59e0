"""The public text data sets: where their files are and how they are read."""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import torch

from litlab.data.bad_rows import settle
from litlab.data.download import PublicFile, obtain_file
from litlab.data.text.corpus import Corpus
from litlab.data.text.reading import read_rows
from litlab.util.progress import SlowProgress

_AG_NEWS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
_IMDB_FILES = 100_022  # members of the archive


@dataclass(frozen=True)
class PublicSet:
    """What is known of a public data set.

    Args:
        files: Its files.
        class_names: Name of each class, in the order of the labels.
    """

    files: tuple[PublicFile, ...]
    class_names: tuple[str, ...]


PUBLIC_SETS = {
    "ag_news": PublicSet(  # Zhang et al. 2015, arXiv:1509.01626
        (
            PublicFile(f"{_AG_NEWS}train.csv", "ag_news/train.csv", "md5:b1a00f826fdfbd249f79597b59e1dc12"),
            PublicFile(f"{_AG_NEWS}test.csv", "ag_news/test.csv", "md5:d52ea96a97a2d943681189a97654912d"),
        ),
        ("World", "Sports", "Business", "Sci/Tech"),
    ),
    "imdb": PublicSet(  # Maas et al. 2011, aclanthology.org/P11-1015
        (
            PublicFile(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                "aclImdb_v1.tar.gz",
                "md5:7c2ac02c03563afcf9b574c7e56c153a",
            ),
        ),
        ("negative", "positive"),
    ),
}


def ensure_downloaded(name: str, root: Path) -> None:
    """Make sure that the files of a public data set are there and whole.

    Args:
        name: Key of `PUBLIC_SETS`.
        root: Folder for the files.

    Raises:
        Unavailable: They are not there and can't be downloaded.
        UserError: They are there, but damaged, and can't be downloaded anew.
    """
    for file in PUBLIC_SETS[name].files:
        obtain_file(file, root)


def read(name: str, root: Path) -> Corpus:
    """Read a public data set that `ensure_downloaded` has put there.

    Args:
        name: Key of `PUBLIC_SETS`.
        root: Folder of the files.
    """
    class_names = list(PUBLIC_SETS[name].class_names)
    texts, labels = _read_imdb(root) if name == "imdb" else _read_ag_news(root)
    return Corpus(class_names, texts, {split: torch.tensor(own) for split, own in labels.items()})


def _read_ag_news(root: Path) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
    texts, labels = {}, {}
    for split, file in zip(("train", "test"), PUBLIC_SETS["ag_news"].files, strict=True):
        rows = read_rows(root / file.name, ["class", "title", "description"], ["title", "description"], "class")
        settle((rows.bad, len(rows.texts)))
        texts[split] = rows.texts
        labels[split] = [int(label) - 1 for label in rows.labels]
    return texts, labels


def _read_imdb(root: Path) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
    """Read the archive from front to back, without unpacking it; the order is that of the numbers in the names."""
    found: dict[str, list[tuple[int, int, str]]] = {"train": [], "test": []}
    with (
        tarfile.open(root / PUBLIC_SETS["imdb"].files[0].name, "r|gz") as archive,
        SlowProgress(_IMDB_FILES, "reading the archive") as progress,
    ):
        for member in archive:
            progress.advance(1)
            parts = member.name.split("/")  # aclImdb/train/pos/123_9.txt: number and stars; unsup/ has no labels
            if member.isfile() and len(parts) == 4 and parts[1] in found and parts[2] in ("neg", "pos"):
                stream = archive.extractfile(member)
                assert stream is not None  # it is a file
                label, number = int(parts[2] == "pos"), int(parts[3].split("_")[0])
                found[parts[1]].append((label, number, stream.read().decode("utf-8")))
    for reviews in found.values():
        reviews.sort()
    texts = {split: [text for _, _, text in reviews] for split, reviews in found.items()}
    return texts, {split: [label for label, _, _ in reviews] for split, reviews in found.items()}
