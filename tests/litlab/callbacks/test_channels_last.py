"""Channels last in memory, and threads: flags of the command line that are callbacks."""

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn

from litlab.callbacks.channels_last import ChannelsLast
from tests.litlab.conftest import CONFIGS


class Convolutions(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
        self.of_volumes = nn.Conv3d(2, 2, 3)  # stays as it is


def test_the_layout_changes_and_nothing_else():
    plain, last = Convolutions(), Convolutions()
    ChannelsLast().setup(Trainer(logger=False, accelerator="cpu"), last, "fit")
    images = torch.randn(2, 3, 8, 8)
    output = last.layers(images)
    assert output.is_contiguous(memory_format=torch.channels_last)
    assert not output.is_contiguous()
    torch.testing.assert_close(output, plain.layers(images))
    for name, weight in last.state_dict().items():
        assert weight.equal(plain.state_dict()[name])
        assert weight.ndim != 4 or weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.matrix
def test_a_resumed_run_is_that_which_was_never_stopped(fit_images, tmp_path):
    """Weights and momentum, which a checkpoint holds in their layout, in every bit; and with the threads that were set.

    Without a schedule, whose length is that of the run.
    """
    settings = ["--channels_last=true", "--threads=2", "--model.schedule=null", "--test_after_fit=false"]
    for arguments in (
        [*settings, "--trainer.max_epochs=2", "--experiment=whole"],
        [*settings, "--trainer.max_epochs=1", "--experiment=parts"],
    ):
        done = fit_images("fit", *arguments)
        assert done.code == 0, done.err
    torch.set_num_threads(1)
    done = fit_images("fit", *settings, "--trainer.max_epochs=2", "--resume=parts")
    assert done.code == 0, done.err
    assert torch.get_num_threads() == 2
    whole, parts = (
        torch.load(tmp_path / f"lightning_logs/{name}/version_0/checkpoints/last.ckpt", weights_only=True)
        for name in ("whole", "parts")
    )
    assert whole["global_step"] == parts["global_step"] == 8
    for name, weight in whole["state_dict"].items():
        assert weight.equal(parts["state_dict"][name])
    momenta = [checkpoint["optimizer_states"][0]["state"] for checkpoint in (whole, parts)]
    for index, state in momenta[0].items():
        assert state["momentum_buffer"].equal(momenta[1][index]["momentum_buffer"])
        assert state["momentum_buffer"].stride() == momenta[1][index]["momentum_buffer"].stride()
    assert any(weight.ndim == 4 and not weight.is_contiguous() for weight in parts["state_dict"].values())


def test_a_model_without_convolutions_is_told(run, short):
    config = CONFIGS / "series.yaml"
    done = run("fit", "--config", config, *short(config), "--channels_last=true", "--test_after_fit=false")
    assert done.code == 0, done.err
    assert "channels_last: SmallForecaster has no two-dimensional convolution, so it changes nothing." in done.err


def test_threads_that_make_no_sense(fit_images):
    done = fit_images("fit", "--threads=0")
    assert done.code == 2
    assert done.err == "error: threads: 0 is not valid; it must be at least 1 and at most 4096\n"
