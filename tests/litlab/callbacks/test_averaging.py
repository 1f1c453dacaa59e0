"""EMA and SWA give the averages that plain torch code gives, which are validated, saved, tested and resumed.

tests/litlab/checkpointing resumes both within an epoch, tests/litlab/parallel averages over several processes.
"""

from copy import deepcopy

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from litlab.callbacks import EMA, SWA
from tests.litlab.callbacks import tiny
from tests.litlab.callbacks.tiny import Tiny, TinyData, are_equal

pytestmark = pytest.mark.filterwarnings("ignore:The dirpath has changed", "ignore:.*callbacks used to create")
DECAY = 0.25  # reached by the warm-up in update 2: (1 + 2) / (10 + 2)
EPOCHS, FIRST = 5, 2


def equal(state, expected):
    torch.testing.assert_close({name: state[name] for name in expected}, dict(expected))


def load(path):
    return torch.load(path, weights_only=True)


def fit(folder, model, *callbacks, **options):
    """Fit on four batches an epoch; the checkpoint of the last epoch is in FOLDER/last.ckpt."""
    callbacks = [*callbacks, ModelCheckpoint(dirpath=folder, save_last=True)]
    return tiny.fit(folder, model, *callbacks, data=TinyData(16, 4), enable_checkpointing=True, **options)


class Watch(Callback):
    """Keeps the weights that are validated in each epoch, and the rates."""

    def __init__(self):
        self.validated, self.rates = [], []

    def on_validation_batch_start(self, trainer, pl_module, *_):
        if not trainer.sanity_checking and len(self.validated) <= trainer.current_epoch:
            self.validated.append(deepcopy(pl_module.state_dict()))

    def on_train_batch_start(self, trainer, pl_module, *_):
        self.rates.append(float(trainer.optimizers[0].param_groups[0]["lr"]))


class Reference(Callback):
    """EMA written out; placed before EMA, so that it sees the step's weights."""

    def __init__(self):
        self.average = {}
        self.update = -1  # the copy

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        decay = min(DECAY, (1 + self.update) / (10 + self.update))
        self.update += 1
        for name, value in pl_module.state_dict().items():
            old = self.average.get(name)
            if old is None or not value.is_floating_point():
                self.average[name] = value.clone()
            else:
                self.average[name] = decay * old + (1 - decay) * value


def test_ema_is_validated_saved_loaded_and_tested(tmp_path):
    reference, watch, model = Reference(), Watch(), Tiny()
    trainer = fit(tmp_path, model, reference, EMA(DECAY), watch, max_epochs=2, accumulate_grad_batches=2)
    saved = load(tmp_path / "last.ckpt")
    for state in (watch.validated[-1], model.state_dict(), saved["state_dict"]):
        equal(state, reference.average)
    assert not torch.equal(saved["current_model_state"]["network.4.weight"], reference.average["network.4.weight"])
    trainer.test(model, TinyData(16, 4), ckpt_path=tmp_path / "last.ckpt", weights_only=True, verbose=False)
    equal(model.state_dict(), reference.average)  # Lightning's own fails here


def falling(epoch):
    return 1 - 0.2 * epoch


class Model(Tiny):
    """With a schedule."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return {"optimizer": optimizer, "lr_scheduler": LambdaLR(optimizer, falling)}


def test_the_mean_of_the_last_epochs_is_validated_saved_and_tested(tmp_path):
    """In the way of torch's AveragedModel."""
    watch, model, trained = Watch(), Model(), []
    model.on_train_batch_end = lambda *_: trained.append(deepcopy(model.state_dict()))
    trainer = fit(tmp_path, model, SWA(FIRST / EPOCHS), watch, max_epochs=EPOCHS)
    trained = trained[3::4]  # of each epoch
    for epoch in range(FIRST):  # before there is an average
        equal(watch.validated[epoch], trained[epoch])
    averaged = AveragedModel(Model(), use_buffers=True)
    for state in trained[FIRST:]:
        other = Model()
        other.load_state_dict(state)
        averaged.update_parameters(other)
    counter = "network.1.num_batches_tracked"
    average = averaged.module.state_dict() | {counter: trained[-1][counter]}
    saved = load(tmp_path / "last.ckpt")
    for state in (watch.validated[-1], model.state_dict(), saved["state_dict"]):
        equal(state, average)
    equal(saved["current_model_state"], trained[-1])
    assert watch.rates == pytest.approx([0.1 * falling(min(epoch, FIRST)) for epoch in range(EPOCHS) for _ in range(4)])
    trainer.test(model, TinyData(16, 4), ckpt_path=tmp_path / "last.ckpt", weights_only=True, verbose=False)
    equal(model.state_dict(), average)


def test_a_run_that_is_resumed_for_longer_goes_on_with_its_average(tmp_path):
    fit(tmp_path, Model(), SWA(0.5), max_epochs=2)
    assert load(tmp_path / "last.ckpt")["averaging_state"]["n_averaged"] == 1
    watch = Watch()
    fit(tmp_path / "longer", Model(), SWA(0.5), watch, max_epochs=6, resume=tmp_path / "last.ckpt")
    assert load(tmp_path / "longer/last.ckpt")["averaging_state"]["n_averaged"] == 5
    assert watch.rates == pytest.approx([0.1 * falling(1)] * 16)


def test_saved_while_the_average_is_validated(tmp_path):
    """An exception may end a validation, and another callback save."""

    class Save(Callback):
        def on_validation_batch_end(self, trainer, pl_module, *_):
            trainer.save_checkpoint(tmp_path / "within.ckpt")

        def on_validation_end(self, trainer, pl_module):
            trainer.save_checkpoint(tmp_path / "after.ckpt")

        def on_train_end(self, trainer, pl_module):
            trainer.save_checkpoint(tmp_path / "end.ckpt")

    fit(tmp_path, Tiny(), EMA(0.9), Save(), max_epochs=2)
    after, *others = (load(tmp_path / f"{name}.ckpt") for name in ("after", "within", "end"))
    for state in ("state_dict", "current_model_state"):
        assert all(are_equal(after[state], other[state]) for other in others)
    assert not are_equal(after["state_dict"], after["current_model_state"])


def test_shared_weights_of_16_bits_are_averaged_in_32(tmp_path):
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = Tiny(network=nn.Sequential(nn.Flatten(), nn.Linear(192, 4), first, second))
    fit(tmp_path, model, EMA(0.9), precision="bf16-true", limit_val_batches=0)
    saved = load(tmp_path / "last.ckpt")
    average = saved["state_dict"]
    assert torch.equal(average["network.2.weight"], average["network.3.weight"])
    types = [saved[state]["network.3.weight"].dtype for state in ("state_dict", "current_model_state")]
    assert types == [torch.float32, torch.bfloat16]
