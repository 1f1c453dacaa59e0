import csv

import pytest
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader

from litlab.callbacks.text_samples import TextSamples
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, evaluate

# TensorBoard's own
pytestmark = pytest.mark.filterwarnings("ignore:html5lib's sanitizer:DeprecationWarning")


class Texts(LightningDataModule):
    """40 texts in 2 classes, in batches of which the order is not that of the samples."""

    class_names = ("ham", "spam")

    def __init__(self, batch_size=7):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.order = torch.randperm(40, generator=generator)
        self.labels = torch.arange(40) % 2
        self.evidence = torch.randn(40, generator=generator)  # the logit of spam
        self.batch_size = batch_size

    def test_dataloader(self):
        samples = [({"ids": self.evidence[i : i + 1]}, self.labels[i]) for i in self.order.tolist()]
        return DataLoader(samples, batch_size=self.batch_size)

    def sample_index(self, split, batch_idx):
        return self.order.split(self.batch_size)[batch_idx]

    def text(self, split, index):
        return f"text {index}\n| <b>*{'x' * 400}"


class Reader(Tiny):
    """Believes the evidence that is its input."""

    def test_step(self, batch, batch_idx):
        evidence = batch[0]["ids"]
        return {"logits": torch.cat([torch.zeros_like(evidence), evidence], 1)}


def rows(folder, data, model=None):
    logger = TensorBoardLogger(folder, "", "")
    evaluate(folder, model or Reader(), data, TextSamples(4), logger=logger)
    with (folder / "texts.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_most_confident_mistakes_and_some_that_are_right(tmp_path):
    data = Texts()
    table = rows(tmp_path, data)
    assert rows(tmp_path / "whole", Texts(batch_size=40)) == table
    predicted = (data.evidence > 0).long()
    probability = torch.sigmoid(data.evidence.abs())
    wrong = predicted != data.labels
    worst = torch.where(wrong, probability, 0).argsort(descending=True)[:4].tolist()
    assert [int(row["number"]) for row in table[:4]] == worst
    for row in table:
        number = int(row["number"])
        assert row["text"] == data.text("test", number)
        assert row["true"] == data.class_names[data.labels[number]]
        assert row["prediction"] == data.class_names[predicted[number]]
        assert float(row["probability"]) == pytest.approx(probability[number].item(), abs=1e-5)
    right = torch.arange(40)[~wrong]
    first, *_, last = [int(row["number"]) for row in table[4:]]
    assert (first, last) == (right[0], right[-1])  # from all over the test split


def test_other_data_is_refused(tmp_path, monkeypatch):
    monkeypatch.delattr(Texts, "sample_index")
    with pytest.raises(UserError, match=r"no 'sample_index'.* remove TextSamples from trainer\."):
        rows(tmp_path, Texts())


class Labels(Texts):
    """Two labels: spam where the class is 1, and one that is always true."""

    class_names, label_names, target_std = (), ("spam", "any"), [2.0, 1.0]

    def __init__(self):
        super().__init__()
        self.labels = torch.stack([self.labels, torch.ones(40)], 1)


class LabelReader(Reader):
    """Believes the evidence for one label, or of one number, and that the other is 9 or 1."""

    thresholds = (0.7, 0.5)

    def __init__(self, key):
        super().__init__()
        self.key = key

    def test_step(self, batch, batch_idx):
        evidence = batch[0]["ids"]
        return {self.key: torch.cat([evidence, 9 + 0 * evidence], 1) - 8 * (self.key != "logits")}


@pytest.mark.parametrize("key", ["logits", "predicted"])
def test_the_worst_of_several_labels_or_numbers_come_first(tmp_path, key):
    data = Labels()
    table = rows(tmp_path, data, LabelReader(key))
    spam, probability = data.labels[:, 0], torch.sigmoid(data.evidence)
    if key == "logits":
        predicted = probability > 0.7
        shown = ["spam, any" if is_spam else "any" for is_spam in predicted]
        sure = torch.where(predicted, probability, 1 - probability)
        score, name = sure * (predicted != spam), "probability"
    else:
        shown = [f"{number - 8:.4g}, 1" for number in data.evidence]
        score, name = (data.evidence - 8 - spam).abs() / 2, "error"
    worst = score.argsort(descending=True)[:4].tolist()
    numbers = [int(row["number"]) for row in table]
    assert numbers[:4] == worst
    assert [float(row[name]) for row in table[:4]] == pytest.approx(score[worst].tolist(), rel=1e-4)
    assert [row["prediction"] for row in table] == [shown[number] for number in numbers]
    assert len({*numbers}) == 8
