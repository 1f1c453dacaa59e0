"""Clipping in mixed precision, with fused optimizers too."""

from functools import partial

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision

from litlab.cli.precision import ClippingMixedPrecision, ExperimentTrainer
from tests.litlab.callbacks.tiny import Tiny, TinyData
from tests.litlab.cli.test_precision import QUIET


class Fused(Tiny):
    """Notes the largest gradient of each step."""

    def __init__(self, fused: bool) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.fused, self.largest = fused, []

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, fused=self.fused)

    def on_before_zero_grad(self, optimizer):
        gradients = [parameter.grad.abs().max() for parameter in self.parameters() if parameter.grad is not None]
        self.largest += [float(max(gradients))] if gradients else []


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_bfloat16_is_clipped_with_a_fused_optimizer_as_without(tmp_path):
    def fit(fused: bool) -> Fused:
        settings = {"gradient_clip_val": 1e-3, "gradient_clip_algorithm": "value"}
        trainer = ExperimentTrainer(
            accelerator="cpu", precision="bf16-mixed", max_epochs=1, default_root_dir=tmp_path, **settings, **QUIET
        )
        assert isinstance(trainer.precision_plugin, ClippingMixedPrecision)
        trainer.fit(model := Fused(fused), TinyData(20, 4))
        return model

    fused, plain = fit(True), fit(False)
    assert fused.largest
    assert max(fused.largest) == pytest.approx(1e-3)
    for one, other in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_scaled_gradients_are_refused():
    plugin = ClippingMixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    weight = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(RuntimeError, match="Are you using a 'fused' optimizer"):
        plugin.clip_gradients(torch.optim.Adam([weight], fused=True), 1.0)
    weight.grad = torch.full((3,), 5.0)
    plugin.clip_gradients(torch.optim.Adam([weight]), 1.0)
    assert float(weight.grad.norm()) == pytest.approx(1.0)


def test_lightning_still_refuses():
    """Or else this plugin is not needed any more."""
    clip = partial(MixedPrecision("bf16-mixed", "cpu").clip_gradients, clip_val=1.0)
    with pytest.raises(RuntimeError, match="does not allow for gradient clipping"):
        clip(torch.optim.Adam([torch.nn.Parameter(torch.ones(3))], fused=True))
