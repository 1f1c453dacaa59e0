"""IMDB movie reviews."""

import tarfile
from pathlib import Path
from typing import Any

from litlab.data import PublicFile, PublicTexts, TextData, progress_bar

_ARCHIVE = PublicFile(
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    "aclImdb_v1.tar.gz",
    "md5:7c2ac02c03563afcf9b574c7e56c153a",
)
_MEMBERS = 100_022


def _read(root: Path) -> Any:
    """Read the archive from front to back, without unpacking it; the order is that of the numbers
    in the names.
    """
    import pandas as pd

    reviews: list[tuple[str, int, int, str]] = []
    with tarfile.open(root / _ARCHIVE.name, "r|gz") as archive:
        for member in progress_bar(archive, desc="reading the archive", total=_MEMBERS):
            # aclImdb/train/pos/123_9.txt: number and stars; unsup/ has no labels
            parts = member.name.split("/")
            if member.isfile() and len(parts) == 4 and parts[2] in ("neg", "pos"):
                stream = archive.extractfile(member)
                assert stream is not None  # it is a file
                number = int(parts[3].split("_")[0])
                reviews.append(
                    (parts[1], int(parts[2] == "pos"), number, stream.read().decode("utf-8"))
                )
    return pd.DataFrame(sorted(reviews), columns=["split", "label", "number", "text"])


class IMDBData(TextData):
    """IMDB (Maas et al. 2011, aclanthology.org/P11-1015): negative and positive movie reviews,
    25,000 a split.
    """

    public = PublicTexts("imdb", (_ARCHIVE,), ("negative", "positive"), _read)
