"""AG News."""

from pathlib import Path
from typing import Any

from litlab.data import PublicFile, PublicTexts, TextData

_URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
_FILES = {
    "train": PublicFile(
        f"{_URL}train.csv", "ag_news/train.csv", "md5:b1a00f826fdfbd249f79597b59e1dc12"
    ),
    "test": PublicFile(
        f"{_URL}test.csv", "ag_news/test.csv", "md5:d52ea96a97a2d943681189a97654912d"
    ),
}


def _read(root: Path) -> Any:
    """Return a frame with the text, the class (counted from 0) and the split of each row."""
    import pandas as pd

    columns = ["label", "title", "description"]  # the files have no header
    parts = [
        pd.read_csv(root / file.name, names=columns, keep_default_na=False).assign(split=split)
        for split, file in _FILES.items()
    ]
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(text=frame["title"] + " " + frame["description"], label=frame["label"] - 1)


class AGNewsData(TextData):
    """AG News (Zhang et al. 2015, arXiv:1509.01626): titles and first lines of news in 4 classes.

    120,000 texts for training, 7,600 for the test.
    """

    public = PublicTexts(
        "ag_news", tuple(_FILES.values()), ("World", "Sports", "Business", "Sci/Tech"), _read
    )
