"""What a fit says before its first batch, and which settings it refuses because the model does not
read them.
"""

import re
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from litlab.callbacks.early_stopping import RunEarlyStopping
from litlab.checkpointing.callback import RunCheckpoint
from litlab.cli.preflight import Preflight, refuse_unused_settings
from litlab.errors import UserError
from litlab.tasks import Classifier
from tests.conftest import BRIEF
from tests.litlab.callbacks.tiny import Tiny, TinyData, fit
from tests.litlab.runs.conftest import error

pytestmark = pytest.mark.filterwarnings(
    "ignore:Total length of `list`",
    "ignore:.*could not find the monitored key",
)


class Unvalidated(TinyData):
    def val_dataloader(self):
        return []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, ""),
        ({"check_val_every_n_epoch": 2, "max_epochs": 2}, ""),
        ({"val_check_interval": 2, "max_steps": 2}, ""),
        (
            {"limit_val_batches": 0},
            "no validation, as trainer.limit_val_batches is 0: val/acc choo",
        ),
        ({"data": Unvalidated}, "no validation, as the data has no validation split"),
        ({"max_steps": 2}, "due at epoch 1, and the run ends at 0.667: val/acc"),
        (
            {"max_steps": 5, "max_epochs": -1, "check_val_every_n_epoch": 2},
            "due at epoch 2, and the run ends at 1.67",
        ),
        ({"check_val_every_n_epoch": None, "val_check_interval": 5}, "due at epoch 1.67, and the"),
        ({"accumulate_grad_batches": 5}, "an epoch has 3 batches, so that each gradient is 3/5 of"),
    ],
    ids=str,
)
def test_what_would_have_no_effect_is_a_warning_and_the_run_goes_on(
    tmp_path, caplog, settings, says
):
    """Of three batches an epoch, with a checkpoint and a stop that wait for a validation."""
    kept = RunCheckpoint(str(tmp_path), monitor="val/acc")
    options = {"enable_checkpointing": True, **settings, "data": settings.get("data", TinyData)()}
    trainer = fit(tmp_path, Tiny(), Preflight(), RunEarlyStopping("val/acc"), kept, **options)
    assert trainer.global_step > 0
    warnings = [message for message in caplog.messages if message.startswith("warning")]
    assert len(warnings) == bool(says)
    assert says in "".join(warnings)
    assert bool(kept.best_model_path) == (re.search("no validation|due", says) is None)


@pytest.mark.parametrize(
    ("interval", "frequency", "settings", "says"),
    [
        ("epoch", 1, {"check_val_every_n_epoch": 2}, "after every 1 epoch, but the first validat"),
        ("step", 1, {}, "after every 1 step, but the first validation is due at epoch 1"),
        ("epoch", 1, {"limit_val_batches": 0}, "but trainer.limit_val_batches is 0"),
        ("epoch", 2, {"check_val_every_n_epoch": 2}, None),  # as it is advised
        ("step", 3, {}, None),
    ],
)
def test_a_plateau_that_would_wait_in_vain_is_refused_before_a_step(
    tmp_path, interval, frequency, settings, says
):
    model = Tiny()
    optimizer = model.configure_optimizers()
    schedule = {
        "scheduler": ReduceLROnPlateau(optimizer), "interval": interval, "frequency": frequency,
        "monitor": "val/acc",
    }  # fmt: skip
    model.configure_optimizers = lambda: {"optimizer": optimizer, "lr_scheduler": schedule}
    with pytest.raises(UserError, match=says) if says else nullcontext():
        fit(tmp_path, model, Preflight(), max_epochs=2, num_sanity_val_steps=0, **settings)
    assert (model.trainer.global_step == 0) == bool(says)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--trainer.val_check_interval=5000", "`val_check_interval` (5000) must be less than or"),
        ("--trainer.val_check_interval=5000 --check", "trainer.val_check_interval: 5000 is above"),
        ("--trainer.max_time=00:00:00:00", "fit: nothing was trained"),
        ("--compile.mode=default --compile.backend=indoctor", "compile.backend: Invalid backend:"),
    ],
)
def test_what_would_end_a_fit_is_one_line(run, settings, flags, says):
    assert says in error(run("fit", *settings, *flags.split()))


def focal_loss(logits, target):
    return (1 - logits.softmax(1).gather(1, target[:, None])).square().mean()


class Focal(Classifier):
    def training_loss(self, logits, target):
        return focal_loss(logits, target)


class Extended(Classifier):
    def training_loss(self, logits, target):
        return super().training_loss(logits, target) + focal_loss(logits, target)


class Reading(Focal):
    def training_loss(self, logits, target):
        return focal_loss(logits, target) * (1 - self.hparams["label_smoothing"])


class Stepping(Classifier):
    def training_outputs(self, batch):
        logits = self(batch[0])
        return self.training_loss(logits, batch[1]), logits.softmax(1), batch[1]


class Forwarding(Classifier):
    def forward(self, inputs):
        return self.network(inputs)


class Optimizing(Classifier):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Naming(Focal):
    """Its author takes the setting and knows what to do with it."""

    def __init__(self, network, label_smoothing=0.0, **settings):
        super().__init__(network, **settings)
        self.smoothed = label_smoothing


class Keeping(Focal):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.smooth = self.label_smoothing


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        (Focal, {"label_smoothing": 0.0, "flip_tta": True, "mixup": 0.2}, None),
        (Extended, {"label_smoothing": 0.1, "class_weights": "even"}, None),
        (Reading, {"label_smoothing": 0.1}, None),
        (Naming, {"label_smoothing": 0.1}, None),
        (Keeping, {"label_smoothing": 0.1}, None),
        (Stepping, {"label_smoothing": 0.1}, None),
        (Stepping, {"cutmix": 0.2}, "cutmix"),
        (Forwarding, {"shift_tta": 2}, "shift_tta"),
        (Optimizing, {"optimizer": {"class_path": "torch.optim.SGD"}}, "optimizer"),
    ],
)
def test_a_setting_that_a_subclass_takes_and_does_not_read_is_refused(kind, settings, name):
    model = kind(network=nn.Linear(4, 3), num_classes=3)
    model.hparams.update(settings)  # as the command line keeps them
    says = rf"model\.{name}: {kind.__name__} does not use it, .*; set it to"
    with pytest.raises(UserError, match=says) if name else nullcontext():
        refuse_unused_settings(model)


def test_a_config_with_a_setting_that_its_class_does_not_read(run, small_data, monkeypatch):
    monkeypatch.setattr("auks.images.SmallCNN.training_loss", Focal.training_loss)
    fit = ["fit", *small_data["images"], *BRIEF, "--trainer.max_steps=1"]
    assert "model.label_smoothing: SmallCNN does not use it" in error(run(*fit))
    run(*fit, "--model.label_smoothing=0.0").check()  # as it is advised
