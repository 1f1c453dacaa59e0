"""Further metrics of a classifier: from YAML and from Python, in the logs and in checkpoints."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAUROC, MulticlassHingeLoss
from torchmetrics.functional.classification import multiclass_auroc, multiclass_hinge_loss

from litlab.checkpointing.io import load_checkpoint
from litlab.tasks import Classifier
from tests.litlab.conftest import CONFIGS

FOLDER = Path("lightning_logs/images/version_0")
METRICS = {
    "auroc": {"class_path": "torchmetrics.AUROC", "init_args": {"task": "multiclass"}},
    "ap": {"class_path": "MulticlassAveragePrecision", "init_args": {"num_classes": 10, "thresholds": 20}},
}


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
    loaded = Classifier.load_from_checkpoint(FOLDER / "checkpoints/last.ckpt", weights_only=True)  # as python.md says
    assert loaded.val_metrics.further["auroc"].num_classes == 10
    done = run("test", "--run", "images", "--data.batch_size", 7)
    assert done.code == 0, done.err
    assert f"{reached['test']['test/auroc']:.4g}" in done.out
    done = run("predict", "--run", "images", "--input", images / "test/class_0")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"m": "MulticlassAUROC"}, "model.metrics: the following arguments are required: num_classes"),
        (
            {"m": "torch.nn.ReLU"},
            "model.metrics: Import path torch.nn.ReLU does not correspond",
        ),
        ({"m": {"class_path": "MulticlassAUROC", "init_args": {"num_classes": 7}}}, "set 10"),
        ({"m": {"class_path": "torchmetrics.AUROC", "init_args": {"task": "binary"}}}, "BinaryAUROC can't take the"),
        (["MulticlassAUROC"], "model.metrics: ['MulticlassAUROC'] is not valid; it must be dict"),
    ],
)
def test_bad_yaml_is_one_line(run, tmp_path, metrics, says):
    network = ["--model=Classifier", "--model.network=auks.images.MNASNet", f"--model.metrics={json.dumps(metrics)}"]
    done = run("fit", "--config", CONFIGS / "images.yaml", *network)
    assert done.code == 2
    [line] = [line for line in done.err.splitlines() if "error" in line]
    assert says in line
    assert not any(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*logging interval")
def test_objects_from_python_count_every_sample_once_and_stay_out_of_checkpoints(tmp_path):
    """Each stage has its own; what they get are probabilities, for logits that could be taken for some as well."""
    torch.manual_seed(0)
    inputs, labels = torch.rand(50, 3), torch.randint(3, (50,))
    model = Classifier(nn.Identity(), num_classes=3, metrics={"auroc": MulticlassAUROC(3), "h": MulticlassHingeLoss(3)})
    options = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    trainer = Trainer(default_root_dir=tmp_path, enable_checkpointing=False, **options)
    loaders = [DataLoader(TensorDataset(inputs[:size], labels[:size]), batch_size=8) for size in (50, 20)]
    for loader in loaders:
        trainer.validate(model, loader, verbose=False)
        probabilities, truth = model(inputs).softmax(1)[: len(loader.dataset)], labels[: len(loader.dataset)]
        assert trainer.callback_metrics["val/auroc"] == multiclass_auroc(probabilities, truth, 3)
        assert trainer.callback_metrics["val/h"] == pytest.approx(multiclass_hinge_loss(probabilities, truth, 3).item())
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert saved["hyper_parameters"]["num_classes"] == 3
    assert "metrics" not in saved["hyper_parameters"]
