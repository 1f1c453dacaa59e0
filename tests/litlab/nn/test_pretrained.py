"""Pre-trained networks: what is loaded, what takes its place, and how loudly."""

from pathlib import Path

import pytest
import torch
import torchvision

from litlab.errors import UserError
from litlab.nn import pretrained
from litlab.tasks import Classifier
from tests.conftest import OFFLINE
from tests.litlab.conftest import BRIEF

URL = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url


@pytest.fixture(autouse=True)
def file(monkeypatch, tmp_path) -> Path:
    """The place of a download, and no network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "torch/hub/checkpoints" / URL.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    return file


def test_weights_come_from_torchs_cache(file):
    """Without `weights` nothing is asked for."""
    saved = torchvision.models.resnet18().state_dict()
    torch.save(saved, file)
    network = pretrained("resnet18", "IMAGENET1K_V1")
    assert all(torch.equal(value, saved[name]) for name, value in network.state_dict().items())
    file.unlink()
    assert not hasattr(pretrained("resnet18", None), "stand_in")


def test_code_in_torchs_cache_is_not_run(file):
    torch.save({"fc.bias": torch.nn.Linear(1, 1)}, file)  # a class, that a pickle may call
    with pytest.raises(UserError, match=f"^{file}: it holds other things than weights, or is damaged; delete it$"):
        pretrained("resnet18", fallback="random")


def test_without_a_fallback_the_error_names_the_file(file):
    with pytest.raises(UserError, match=f"can't be downloaded .*; save {URL} as {file}, or set fallback: random$"):
        pretrained("resnet18")


@pytest.mark.filterwarnings("ignore:The weights are RANDOM")
def test_random_weights_are_announced_and_remembered(run, tmp_path, images):
    """A checkpoint does not ask for the weights again."""
    network = "{class_path: litlab.nn.pretrained, init_args: {name: squeezenet1_1, fallback: random}}"
    with pytest.warns(UserWarning, match="The weights are RANDOM, not pre-trained: .*For the real ones"):
        done = run(
            "fit", "--model=Classifier", f"--model.network={network}", "--model.optimizer=torch.optim.SGD",
            "--data=ImageData", "--data.dataset=folder", f"--data.path={images}", "--data.batch_size=20", *BRIEF,
            *(f"--trainer.limit_{split}_batches=1" for split in ("train", "val", "test")),
        )  # fmt: skip
    assert done.code == 0, done.err
    assert "RANDOM, not pre-trained" in done.out
    folder = tmp_path / "lightning_logs/default/version_0"
    note = "RANDOM, not pre-trained: DEFAULT of squeezenet1_1 can't be downloaded"
    assert (folder / "RANDOM_WEIGHTS.txt").read_text() == note
    Classifier.load_from_checkpoint(folder / "checkpoints/last.ckpt", weights_only=True)
