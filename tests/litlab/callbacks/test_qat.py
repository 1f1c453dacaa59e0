"""Layers that round in fit, and are whole again afterwards."""

import pytest
import torch
from torch import nn

from litlab.callbacks import QAT
from litlab.callbacks.qat import Rounding, round_weight
from tests.litlab.callbacks.tiny import Tiny, TinyData, are_equal, fit


def test_layers_round_in_fit_alone_and_a_resumed_fit_has_their_ranges(tmp_path):
    outputs = []

    def run(**settings):
        torch.manual_seed(0)
        model = Tiny()
        model.network[0].register_forward_hook(lambda *given: outputs.append(given[-1]))
        fit(tmp_path, model, QAT(), data=TinyData(16, 8), num_sanity_val_steps=0, **settings)
        return model

    run().trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = run(max_epochs=2, resume=tmp_path / "half.ckpt")
    whole = run(max_epochs=2)
    validated = outputs[-1]
    assert are_equal(whole.state_dict(), resumed.state_dict())
    assert "forward" not in vars(whole.network[0])
    *_, (images, _) = TinyData(16, 8).train_dataloader()
    exact = whole.eval().network[0](images)
    error = (validated - exact).abs()
    assert 0 < error.max() < 0.15 * exact.abs().max(), (
        "validated with rounding, and only with rounding"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"padding": (1, 2), "padding_mode": "reflect", "stride": 2},
        {"padding": "same", "padding_mode": "circular", "dilation": (1, 2)},
        {"padding": "valid", "padding_mode": "replicate"},
    ],
    ids=str,
)
def test_rounding_has_as_many_steps_as_int8_and_one_scale_for_each_output(settings):
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, (3, 2), **settings)
    rounding = Rounding(layer)
    with torch.no_grad():
        layer.weight[1] *= 100
    inputs = torch.rand(4, 2, 8, 8) * 6 - 2
    rounded, weight = rounding.round_inputs(inputs), round_weight(layer.weight)
    expected = torch.func.functional_call(layer, {"weight": weight}, rounded)
    torch.testing.assert_close(Rounding(layer)(inputs), expected)
    assert len(rounded.unique()) <= 256
    for row, same in zip(layer.weight, weight, strict=True):
        step = row.abs().max() / 127
        torch.testing.assert_close(same, (row / step).round() * step)
    low, high = rounded.min(), rounded.max()
    layer.eval()
    again = rounding.round_inputs(inputs * 100)
    assert (again.min(), again.max()) == (low, high), "its range is that of the training"
    assert torch.equal(Rounding(layer).round_inputs(inputs), inputs), (
        "a part that is not trained sees no range"
    )
