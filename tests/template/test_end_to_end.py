"""The CIFAR experiment from the command line to the files that it leaves."""

import pytest
import torch
import torchvision
from lightning.pytorch import LightningModule
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import BRIEF, CONFIGS


def test_curves_are_logged(run, short, tmp_path):
    config = CONFIGS / "cifar.yaml"
    run("fit --config", config, *short(config), "--model.width=16").check()
    events = EventAccumulator(f"{tmp_path}/lightning_logs/cifar/version_0")
    events.Reload()
    scalars, images = (set(events.Tags()[kind]) for kind in ("scalars", "images"))
    expected = """
        train/loss train/acc train/loss_step val/loss val/acc val/f1 test/acc test/loss
        memory/host_gib time/epoch_seconds time/samples_per_second
    """
    assert {*expected.split()} <= scalars, scalars
    assert any(name.startswith("lr-") for name in scalars)
    drawn = ("confusion_matrix", "calibration", "test_images", "mistakes")
    assert images == {f"test/{name}" for name in drawn}
    # Mean over the epoch: the steps' losses are of equal batches, so their mean is the epoch's.
    steps = [event.value for event in events.Scalars("train/loss_step")]
    assert events.Scalars("train/loss")[0].value == pytest.approx(sum(steps) / 4, rel=1e-4)


def test_any_torchvision_network_by_yaml_alone_whose_pretrained_weights_are_not_needed_again(
    run, images, tmp_path, monkeypatch
):
    """The download is replaced by a file in torch's cache, where a real one would lie."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    torch.manual_seed(7)
    weights = torchvision.models.resnet18().state_dict()
    url = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url
    file = tmp_path / "torch/hub/checkpoints" / url.rsplit("/")[-1]
    file.parent.mkdir(parents=True)
    torch.save(weights, file)
    line = f"""
        fit --model=Classifier --model.network=torchvision.models.resnet18 --data=ImageData
        --model.network.weights=IMAGENET1K_V1 --model.optimizer=torch.optim.SGD
        --model.optimizer.lr=1e-12 --data.dataset=folder --data.path={images} --data.batch_size=20
        --trainer.limit_train_batches=1 --trainer.limit_val_batches=1 --test_after_fit=false
    """
    run(line, *BRIEF).check()
    file.unlink()
    saved = next((tmp_path / "lightning_logs/default/version_0/checkpoints").glob("*.ckpt"))
    model = LightningModule.load_from_checkpoint(saved, weights_only=True)
    conv = model.network.layer4[1].conv2
    torch.testing.assert_close(conv.weight, weights["layer4.1.conv2.weight"])
    assert model.network.fc.out_features == 10
