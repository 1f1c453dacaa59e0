"""AG News."""

from pathlib import Path

from litlab.data import PublicFile
from litlab.data.text import PublicTexts, TextData, read_texts

_URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
_FILES = {
    "train": PublicFile(f"{_URL}train.csv", "ag_news/train.csv", "md5:b1a00f826fdfbd249f79597b59e1dc12"),
    "test": PublicFile(f"{_URL}test.csv", "ag_news/test.csv", "md5:d52ea96a97a2d943681189a97654912d"),
}


def _read(root: Path) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
    texts, labels = {}, {}
    for split, file in _FILES.items():
        columns = ["class", "title", "description"]
        texts[split], classes = read_texts(root / file.name, columns, ["title", "description"], "class")
        labels[split] = [int(label) - 1 for label in classes]
    return texts, labels


class AGNewsData(TextData):
    """AG News (Zhang et al. 2015, arXiv:1509.01626): titles and first lines of news in 4 classes.

    120,000 texts to train on, 7,600 to test on.
    """

    public = PublicTexts("ag_news", tuple(_FILES.values()), ("World", "Sports", "Business", "Sci/Tech"), _read)
