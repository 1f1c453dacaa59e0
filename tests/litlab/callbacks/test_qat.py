"""Layers that round in fit, and are whole again afterwards."""

import copy

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from litlab.callbacks import QAT
from litlab.errors import UserError
from litlab.nn.fake_quantize import LINEAR, LINEAR_AND_CONVOLUTIONS, Rounding, round_weight, share_of


class Model(LightningModule):
    """A small CNN that notes what its first convolution returns."""

    def __init__(self, network=None):
        super().__init__()
        convolution = nn.Conv2d(1, 4, 3)
        self.network = network or nn.Sequential(convolution, nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
        self.validated = None

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.validated = self.network[0](batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.fixture
def loader():
    torch.manual_seed(0)
    images = torch.rand(16, 1, 8, 8)
    return DataLoader(TensorDataset(images, (images.mean((1, 2, 3)) > 0.5).long()), batch_size=8)


def trained(loader, callback, epochs=2, model=None, **options):
    torch.manual_seed(0)
    model = model or Model()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(
        max_epochs=epochs, callbacks=[callback], log_every_n_steps=1, num_sanity_val_steps=0, **quiet, **options
    )
    trainer.fit(model, loader, loader)
    return model, trainer


def test_layers_round_in_fit_and_its_validation_and_are_whole_afterwards(loader, tmp_path):
    model, _ = trained(loader, QAT(), default_root_dir=tmp_path, enable_checkpointing=False)
    assert "forward" not in vars(model.network[0])
    assert set(model.state_dict()) == set(Model().state_dict())
    *_, (images, _) = loader
    model.eval()
    whole = model.network[0](images)
    error = (model.validated - whole).abs()
    assert 0 < error.max() < 0.05 * whole.abs().max(), "validated with rounding, and only with rounding"


def test_rounding_has_as_many_steps_as_int8_and_one_scale_for_each_output():
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 3)
    rounding = Rounding(layer)
    with torch.no_grad():
        layer.weight[1] *= 100
    inputs = torch.rand(4, 2, 8, 8) * 6 - 2
    rounded, weight = rounding.round_inputs(inputs), round_weight(layer.weight)
    torch.testing.assert_close(Rounding(layer)(inputs), nn.functional.conv2d(rounded, weight, layer.bias))
    assert len(rounded.unique()) <= 256
    for row, same in zip(layer.weight, weight, strict=True):
        step = row.abs().max() / 127
        assert torch.equal((same / step).round(), (row / step).round())
        assert (row - same).abs().max() <= step / 2 * 1.001
    low, high = rounded.min(), rounded.max()
    layer.eval()
    again = rounding.round_inputs(inputs * 100)
    assert (again.min(), again.max()) == (low, high), "its range is that of the training"


def test_gradients_pass_as_if_nothing_was_rounded():
    torch.manual_seed(0)
    layer, inputs = nn.Linear(5, 3), torch.rand(7, 5)
    plain = copy.deepcopy(layer)
    layer.forward = Rounding(layer)
    for one in (layer, plain):
        one(inputs).sum().backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad, plain.weight.grad, rtol=0.02, atol=0.02)
    del layer.forward
    assert torch.equal(layer(inputs), plain(inputs))


def test_a_resumed_fit_continues_with_the_ranges(loader, tmp_path):
    whole, _ = trained(loader, QAT(), default_root_dir=tmp_path, enable_checkpointing=False)
    first, trainer = trained(loader, QAT(), epochs=1, default_root_dir=tmp_path, enable_checkpointing=False)
    file = tmp_path / "half.ckpt"
    trainer.save_checkpoint(file)
    del first
    torch.manual_seed(0)
    model = Model()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    again = Trainer(max_epochs=2, callbacks=[QAT()], num_sanity_val_steps=0, enable_checkpointing=False, **quiet)
    again.fit(model, loader, loader, ckpt_path=file, weights_only=True)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_a_part_that_is_not_trained_computes_as_it_did():
    """It sees no range to round to, such as a backbone that stays in eval mode."""
    torch.manual_seed(0)
    layer, inputs = nn.Linear(4, 2).eval(), torch.randn(5, 4)
    rounding, again = Rounding(layer), Rounding(layer)
    assert torch.equal(rounding.round_inputs(inputs), inputs)
    layer.train()
    rounding.round_inputs(inputs)
    layer.eval()
    again.range = rounding.range
    for one in (rounding, again):
        assert 0 < (one.round_inputs(inputs) - inputs).abs().max() < 0.05


def test_a_network_that_it_would_leave_as_it_is_is_refused(loader):
    with pytest.raises(
        UserError, match="most of the weights are those of LSTM, which would stay as they are; leave it out"
    ):
        trained(
            loader, QAT(), model=Model(nn.ModuleList([nn.LSTM(8, 32), nn.Linear(32, 2)])), enable_checkpointing=False
        )


def test_the_share_leaves_embeddings_and_biases_aside():
    network = nn.ModuleList([nn.Embedding(1000, 8), nn.Linear(8, 10), nn.Conv2d(2, 10, 1), nn.GRU(1, 10)])
    gru = 30 + 300
    assert share_of(network, LINEAR) == (pytest.approx(80 / (80 + 20 + gru)), "GRU")
    assert share_of(network, LINEAR_AND_CONVOLUTIONS) == (pytest.approx(100 / (100 + gru)), "GRU")
    assert share_of(nn.Linear(3, 3), LINEAR) == (1.0, "")
