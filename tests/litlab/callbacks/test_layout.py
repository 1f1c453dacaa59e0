"""Channels last in memory, threads, and what a fit that failed leaves behind."""

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn

from litlab.callbacks import QAT, ActivationCheckpointing, OptimizerInBackward
from litlab.callbacks.layout import ChannelsLast, Threads
from tests.litlab.callbacks.tiny import Failing, Tiny, TinyData, fit, make_trainer


def test_the_layout_changes_and_nothing_else():
    def build() -> Tiny:
        torch.manual_seed(0)
        return Tiny(network=nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)))

    plain, last = build(), build()
    last.of_volumes = nn.Conv3d(2, 2, 3)  # stays as it is
    ChannelsLast().setup(Trainer(logger=False, accelerator="cpu"), last, "fit")
    images = torch.randn(2, 3, 8, 8)
    output = last.network(images)
    assert output.is_contiguous(memory_format=torch.channels_last)
    assert not output.is_contiguous()
    torch.testing.assert_close(output, plain.network(images))
    for name, weight in plain.state_dict().items():
        assert weight.equal(last.state_dict()[name])


def test_threads_are_those_of_the_run_alone(tmp_path):
    class Counting(Tiny):
        def on_train_start(self):
            self.threads = torch.get_num_threads()

    before, model = torch.get_num_threads(), Counting()
    make_trainer(tmp_path, callbacks=[Threads(before + 1)]).fit(model, TinyData())
    assert (model.threads, torch.get_num_threads()) == (before + 1, before)


@pytest.mark.parametrize("callback", [ActivationCheckpointing("network.0"), OptimizerInBackward(), QAT()])
def test_a_fit_that_failed_leaves_the_model_as_it_was(tmp_path, callback):
    model = Failing()
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, model, callback)
    assert not any("forward" in vars(module) for module in model.modules())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
