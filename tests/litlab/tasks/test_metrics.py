"""Metrics that the user names: from YAML and from Python, over ranks, and resumed within an epoch."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassHingeLoss
from torchmetrics.functional.classification import multiclass_auroc, multiclass_hinge_loss
from torchmetrics.utilities import dim_zero_cat

from litlab.checkpointing.io import load_checkpoint
from litlab.tasks import Classifier
from tests.conftest import ROOT
from tests.litlab.checkpointing.in_process import Data, Draws, fit
from tests.litlab.conftest import CONFIGS
from tests.processes import Python, ranks

FOLDER = Path("lightning_logs/images/version_0")
METRICS = {
    "auroc": {"class_path": "torchmetrics.AUROC", "init_args": {"task": "multiclass"}},
    "ap": {"class_path": "MulticlassAveragePrecision", "init_args": {"num_classes": 10, "thresholds": 20}},
}
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*logging interval")


class MyAccuracy(Metric):
    """As torchmetrics' page on metrics of one's own has it."""

    full_state_update = True
    higher_is_better = True

    def __init__(self) -> None:
        super().__init__()
        self.add_state("correct", default=torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds, target):
        self.correct += torch.sum(preds.argmax(dim=1) == target)
        self.total += target.numel()

    def compute(self):
        return self.correct.float() / self.total


class MyConfidence(Metric):
    """Keeps all it has seen, in two lists."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("seen", default=[], dist_reduce_fx="cat")
        self.add_state("targets", default=[], dist_reduce_fx="cat")

    def update(self, preds, target):
        self.seen.append(preds.amax(dim=1))
        self.targets.append(target)

    def compute(self):
        return (dim_zero_cat(self.seen) * (1 + dim_zero_cat(self.targets))).mean()


def own_metrics() -> dict[str, Metric]:
    return {"mine": MyAccuracy(), "kept": MyConfidence(), "twice": MyAccuracy() + MulticlassAccuracy(3)}


def test_from_yaml_to_checkpoints_and_back(run, images):
    network = ["--model=Classifier", "--model.network=auks.images.MNASNet", f"--model.metrics={json.dumps(METRICS)}"]
    data = ["--data.dataset=folder", f"--data.path={images}", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    monitor = ["--checkpoint.monitor=val/auroc", "--early_stopping.monitor=val/ap"]
    done = run("fit", "--config", CONFIGS / "images.yaml", *data, *network, *monitor)
    assert done.code == 0, done.err
    kept = yaml.safe_load((FOLDER / "config.yaml").read_text())["model"]["init_args"]["metrics"]
    assert kept["auroc"]["init_args"]["num_classes"] == 10  # as the data has
    plain = load_checkpoint(FOLDER / "checkpoints/last.ckpt")["hyper_parameters"]["metrics"]
    assert plain["auroc"]["init_args"] == kept["auroc"]["init_args"]
    reached = json.loads((FOLDER / "metrics.json").read_text())
    assert reached["best"]["monitor"] == "val/auroc"
    assert 0.5 < reached["test"]["test/auroc"] < 1
    done = run("test", "--run", "images", "--data.batch_size", 7)
    assert done.code == 0, done.err
    assert f"{reached['test']['test/auroc']:.4g}" in done.out


def test_objects_from_python_count_every_sample_once_and_stay_out_of_checkpoints(tmp_path):
    """What they get are probabilities, for logits that could be taken for some as well."""
    torch.manual_seed(0)
    inputs, labels = torch.rand(50, 3), torch.randint(3, (50,))
    metrics = {"auroc": MulticlassAUROC(3), "h": MulticlassHingeLoss(3), **own_metrics()}
    model = Classifier(nn.Identity(), num_classes=3, metrics=metrics)
    options = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    trainer = Trainer(default_root_dir=tmp_path, enable_checkpointing=False, **options)
    for size in (50, 20):
        trainer.validate(model, DataLoader(TensorDataset(inputs[:size], labels[:size]), batch_size=8), verbose=False)
        probabilities, truth = model(inputs).softmax(1)[:size], labels[:size]
        right = (probabilities.argmax(1) == truth).float().mean()
        expected = {
            "auroc": multiclass_auroc(probabilities, truth, 3),
            "h": multiclass_hinge_loss(probabilities, truth, 3),
            "mine": right,
            "kept": (probabilities.amax(dim=1) * (1 + truth)).mean(),
        }
        for name, value in expected.items():
            assert trainer.callback_metrics[f"val/{name}"].item() == pytest.approx(value.item()), name
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert saved["hyper_parameters"]["num_classes"] == 3
    assert "metrics" not in saved["hyper_parameters"]


class Counting(Draws):
    def __init__(self, stop=None) -> None:
        network = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Linear(8, 3))
        own = own_metrics()
        Classifier.__init__(
            self, network, num_classes=3, metrics=own, optimizer=partial(torch.optim.Adam, lr=0.01),
            class_weights=None, label_smoothing=0.1,
        )  # fmt: skip
        self.stop = stop
        self.drawn, self.rates, self.ended = {}, {}, []


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists")
def test_they_go_on_exactly_within_an_epoch(tmp_path):
    whole, trainer = fit(tmp_path / "whole", module=Counting, data=Data)
    fit(tmp_path / "parts", stop=("batch", 1, 2), module=Counting, data=Data)
    resumed, again = fit(tmp_path / "parts", resume=True, module=Counting, data=Data)
    assert {"train/mine", "train/kept", "train/twice"} <= trainer.callback_metrics.keys()
    for name, value in trainer.callback_metrics.items():
        assert torch.equal(value, again.callback_metrics[name]), name
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())


class Streamed(IterableDataset):
    """Samples of which nobody knows how many there are: a rank may get none."""

    def __init__(self, samples) -> None:
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)


def evaluate(folder, samples: int, **options) -> dict[str, float]:
    """The metrics of the first samples, of which each rank has its own; of one sample one rank has none."""
    generator = torch.Generator().manual_seed(0)
    dataset = [(torch.rand(3, generator=generator), int(torch.randint(3, (), generator=generator))) for _ in range(17)]
    trainer = Trainer(
        default_root_dir=folder, enable_checkpointing=False, enable_progress_bar=False, logger=False,
        accelerator="cpu", use_distributed_sampler=False, **options,
    )  # fmt: skip
    mine = dataset[trainer.global_rank : samples : trainer.world_size]
    model = Classifier(nn.Sequential(nn.Identity(), nn.Linear(3, 3)), num_classes=3, metrics=own_metrics())
    nn.init.eye_(model.network[1].weight)
    nn.init.zeros_(model.network[1].bias)
    trainer.validate(model, DataLoader(Streamed(mine), batch_size=4), verbose=False)
    return {name: value.item() for name, value in trainer.callback_metrics.items()}


PROGRAM = """
import json, os, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
from tests.litlab.tasks.test_metrics import evaluate

results = [evaluate(sys.argv[2], samples, devices=2, strategy="ddp") for samples in (1, 17)]
with open(f"{sys.argv[2]}/{os.environ['LOCAL_RANK']}.json", "w") as file:
    json.dump(results, file)
"""


@pytest.mark.filterwarnings("ignore:.*No .* samples in targets", "ignore:Trying to infer the `batch_size`")
def test_ranks_with_other_numbers_of_batches_evaluate_like_one(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(PROGRAM)
    processes = [Python(script, ROOT, tmp_path, cwd=ROOT, environment=of_rank) for of_rank in ranks(2)]
    printed = [process.communicate(120)[1] for process in processes]
    assert [process.wait() for process in processes] == [0, 0], printed
    for rank in (0, 1):
        results = json.loads((tmp_path / f"{rank}.json").read_text())
        for samples, result in zip((1, 17), results, strict=True):
            assert result == pytest.approx(evaluate(tmp_path, samples), nan_ok=True)
