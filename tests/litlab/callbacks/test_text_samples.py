import pytest
import torch
from lightning.pytorch import LightningDataModule
from pandas import read_csv
from torch import nn
from torch.utils.data import DataLoader

from litlab.callbacks.text_samples import TextSamples
from tests.litlab.callbacks.tiny import evaluate


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


def read(batch):
    """Believes the evidence that is its input."""
    return {"logits": nn.functional.pad(batch[0]["ids"], (1, 0))}


def rows(folder, data, answer=read):
    evaluate(folder, answer, data, TextSamples(4))
    return read_csv(folder / "texts.csv").to_dict("records")


def test_the_most_confident_mistakes_and_some_that_are_right(tmp_path):
    data = Texts()
    table = rows(tmp_path, data)
    assert rows(tmp_path / "whole", Texts(batch_size=40)) == table
    predicted = (data.evidence > 0).long()
    probability = torch.sigmoid(data.evidence.abs())
    wrong = predicted != data.labels
    worst = torch.where(wrong, probability, 0).argsort(descending=True)[:4].tolist()
    assert [row["number"] for row in table[:4]] == worst
    for row in table:
        number = row["number"]
        assert row["text"] == data.text("test", number)
        assert row["true"] == data.class_names[data.labels[number]]
        assert row["prediction"] == data.class_names[predicted[number]]
        assert row["probability"] == pytest.approx(probability[number].item(), abs=1e-5)
    right = torch.arange(40)[~wrong]
    first, *_, last = [row["number"] for row in table[4:]]
    assert (first, last) == (right[0], right[-1])  # from all over the test split


def test_of_numbers_those_with_the_largest_error_come_first(tmp_path):
    """In deviations of each, of two numbers of each text: 0 or 1, and 1. The model believes that
    the first is the evidence. test_image_plots.py has labels of which several are true.
    """
    data = Texts()
    data.class_names, data.target_std = (), [2.0, 1.0]
    data.labels = torch.stack([data.labels, torch.ones(40)], 1)

    def count(batch):
        return {"predicted": nn.functional.pad(batch[0]["ids"], (0, 1), value=1.0)}

    table = rows(tmp_path, data, count)
    error = (data.evidence - data.labels[:, 0]).abs() / 2
    numbers = [row["number"] for row in table]
    assert numbers[:4] == error.argsort(descending=True)[:4].tolist()
    assert len({*numbers}) == 8
    for row, number in zip(table, numbers, strict=True):
        assert row["prediction"] == f"{data.evidence[number]:.4g}, 1"
        assert row["error"] == pytest.approx(error[number].item(), rel=1e-4)
