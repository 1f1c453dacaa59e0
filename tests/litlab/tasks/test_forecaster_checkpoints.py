"""The intervals that a forecaster's checkpoint has, with an average of the weights and without."""

import math

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from litlab.callbacks import EMA
from litlab.tasks import Forecaster
from tests.litlab.tasks.test_forecaster import Linear, build
from tests.litlab.tasks.tiny_series import TinySeries, everything, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


def validation_radius(model, data):
    """The radius of the weights that the model has now, worked out by hand."""
    val = everything(data, 1)
    with torch.no_grad():
        residuals = (model.eval()(val["past"]).squeeze(-1) - val["future"]).abs()
    return residuals.sort(dim=0).values[math.ceil(24 * 0.9) - 1]


@pytest.mark.parametrize("average", [True, False])
def test_a_checkpoint_has_the_radius_of_its_weights(tmp_path, average):
    data, model = TinySeries(), build()
    checkpoint = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, save_last=True)
    callbacks = [checkpoint, *([EMA(0.8)] if average else [])]
    trainer = make_trainer(tmp_path, max_epochs=3, enable_checkpointing=True, callbacks=callbacks)
    trainer.fit(model, data)
    torch.testing.assert_close(model.conformal.radius, validation_radius(model, data))
    radii = []
    for epoch in range(3):
        path = tmp_path / f"epoch={epoch}.ckpt"
        assert ("current_model_state" in torch.load(path, weights_only=True)) == average
        loaded = Forecaster.load_from_checkpoint(path, network=Linear(), weights_only=True)
        expected = validation_radius(loaded, data)
        torch.testing.assert_close(loaded.conformal.radius, expected)
        trainer.test(model, data, ckpt_path=path, weights_only=True, verbose=False)
        torch.testing.assert_close(model.conformal.radius, expected)
        torch.testing.assert_close(trainer.callback_metrics["test/interval_width"], 2 * expected.mean())
        radii.append(expected)
    assert not torch.allclose(radii[0], radii[2])


def test_saved_in_the_middle_of_an_epoch_the_average_keeps_its_radius(tmp_path):
    data, model = TinySeries(), build()
    by_step = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=7, save_top_k=-1)
    trainer = make_trainer(tmp_path, max_epochs=2, enable_checkpointing=True, callbacks=[by_step, EMA(0.8)])
    trainer.fit(model, data)
    loaded = Forecaster.load_from_checkpoint(tmp_path / "step=7.ckpt", network=Linear(), weights_only=True)
    assert loaded.conformal.radius.isfinite().all()  # of the validation after step 5


def test_a_checkpoint_without_calibration_or_for_another_coverage_leaves_none(tmp_path):
    data, model = TinySeries(), build()
    trainer = make_trainer(tmp_path, limit_val_batches=0)
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "without.ckpt")
    trainer = make_trainer(tmp_path)
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "with.ckpt")
    assert model.conformal.radius is not None
    other = Forecaster.load_from_checkpoint(tmp_path / "with.ckpt", network=Linear(), coverage=0.5, weights_only=True)
    assert other.conformal.radius is None
    trainer.test(model, data, ckpt_path=tmp_path / "without.ckpt", weights_only=True, verbose=False)
    assert model.conformal.radius is None
