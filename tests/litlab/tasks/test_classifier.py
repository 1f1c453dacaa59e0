"""Classifier and StageMetrics."""

from functools import partial

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from litlab.errors import UserError
from litlab.metrics.stage_metrics import StageMetrics
from litlab.metrics.state import load_metric_states, metric_states
from litlab.tasks import Classifier


def _collection() -> MetricCollection:
    return MetricCollection({"acc": MulticlassAccuracy(3, average="micro")})


@pytest.mark.parametrize("flush_every", [1, 2, 50])
def test_every_sample_counts_once_whatever_the_chunks(flush_every):
    torch.manual_seed(0)
    batches = [(torch.randn(n, 3), torch.randint(0, 3, (n,))) for n in (4, 4, 1, 3, 4)]
    metrics = StageMetrics(_collection(), "val", flush_every)
    for logits, labels in batches:
        metrics.add(F.cross_entropy(logits, labels), logits, labels)
    values = metrics.compute(lambda sums: sums)
    logits, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    assert values["val/acc"] == (logits.argmax(1) == labels).float().mean()
    assert values["val/loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)


def test_reset_forgets_what_was_not_flushed_too():
    metrics = StageMetrics(_collection(), "val")
    right, wrong = torch.eye(3), torch.eye(3).roll(1, 0)
    metrics.add(torch.tensor(9.0), wrong, torch.arange(3))
    metrics.reset(torch.device("cpu"))
    metrics.add(torch.tensor(1.0), right, torch.arange(3))
    assert metrics.compute(lambda sums: sums) == {"val/loss": 1.0, "val/acc": 1.0}


def test_a_loss_that_is_not_a_number_is_seen():
    metrics = StageMetrics(_collection(), "val")
    metrics.add(torch.tensor(float("nan")), torch.eye(3), torch.arange(3))
    metrics.add(torch.tensor(1.0), torch.eye(3), torch.arange(3))
    assert metrics.compute(lambda sums: sums)["val/loss"].isnan()


def test_it_goes_on_from_its_sums():
    torch.manual_seed(0)
    batches = [(torch.randn(4, 3), torch.randint(0, 3, (4,))) for _ in range(6)]
    whole, first, second, idle = (StageMetrics(_collection(), "train", flush_every=4) for _ in range(4))
    for number, (logits, labels) in enumerate(batches):
        if number == 5:
            load_metric_states(second, metric_states(first), torch.device("cpu"))
        for metrics in (whole, first if number < 5 else second):
            metrics.add(F.cross_entropy(logits, labels), logits, labels)
    load_metric_states(idle, metric_states(whole), torch.device("cpu"))  # no further step comes; without a warning
    assert idle.compute(lambda sums: sums) == second.compute(lambda sums: sums) == whole.compute(lambda sums: sums)


def _fit(tmp_path, **settings):
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(12, 4), torch.arange(12) % 3), batch_size=5)
    model = Classifier(nn.Linear(4, 3), num_classes=3, **settings)
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    return model, trainer, data


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*logging interval")
def test_smoothing_is_for_training_only(tmp_path):
    model, trainer, data = _fit(tmp_path, label_smoothing=0.5, optimizer=partial(torch.optim.SGD, lr=1e-12))
    trainer.fit(model, data, data)
    train, val = (trainer.callback_metrics[f"{stage}/loss"].item() for stage in ("train", "val"))
    inputs, labels = (torch.stack(part) for part in zip(*data.dataset, strict=True))
    assert val == pytest.approx(F.cross_entropy(model(inputs), labels).item(), rel=1e-4)
    assert train == pytest.approx(F.cross_entropy(model(inputs), labels, label_smoothing=0.5).item(), rel=1e-4)


def test_the_number_of_classes_is_needed():
    with pytest.raises(UserError, match=r"^model\.num_classes: it is not set, .*; set it, or give"):
        Classifier(nn.Linear(4, 3))


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*have no `val_dataloader`")
def test_a_wrong_optimizer_argument_is_one_line(tmp_path):
    model, trainer, data = _fit(tmp_path, optimizer=partial(torch.optim.SGD, lr=-1.0))
    with pytest.raises(ValueError, match=r"^Invalid learning rate: -1.0"):
        trainer.fit(model, data)
