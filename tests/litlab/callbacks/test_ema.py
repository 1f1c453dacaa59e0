import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from litlab.callbacks import EMA
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")
DECAY = 0.25  # reached by the warm-up in update 2: (1 + 2) / (10 + 2)


class Reference(Callback):
    """The same average, written out; placed before EMA, so that it sees the step's weights."""

    def __init__(self, every=1, start=0):
        self.average, self.every, self.start, self.validated = {}, every, start, []
        self.update = -1  # the copy

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        step = trainer.global_step - 1
        if (batch_idx + 1) % trainer.accumulate_grad_batches or step < self.start:
            return
        if (step - self.start) % self.every:
            return
        decay = min(DECAY, (1 + self.update) / (10 + self.update))
        self.update += 1
        for name, value in pl_module.state_dict().items():
            old = self.average.get(name)
            if old is None or not value.is_floating_point():
                self.average[name] = value.clone()
            else:
                self.average[name] = decay * old + (1 - decay) * value

    def on_validation_batch_start(self, trainer, pl_module, *args):
        if self.average and not trainer.sanity_checking:
            self.validated.append({name: value.clone() for name, value in pl_module.state_dict().items()})
            check(self.validated[-1], self.average)


def check(state, average):
    for name, value in average.items():
        torch.testing.assert_close(state[name], value, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(("every", "start", "accumulate"), [(1, 0, 1), (2, 0, 1), (1, 2, 1), (1, 0, 2)])
def test_average_is_validated_saved_loaded_and_tested(tmp_path, every, start, accumulate):
    reference, checkpoint = Reference(every, start), ModelCheckpoint(dirpath=tmp_path, save_last=True)
    trainer = make_trainer(
        tmp_path,
        max_epochs=2,
        enable_checkpointing=True,
        accumulate_grad_batches=accumulate,
        callbacks=[reference, EMA(DECAY, every, start), checkpoint],
    )
    model, data = Tiny(), TinyData(16, 4)
    trainer.fit(model, data)
    assert reference.validated
    check(model.state_dict(), reference.average)
    stored = torch.load(checkpoint.last_model_path, weights_only=True)
    check(stored["state_dict"], reference.average)
    assert not torch.equal(stored["current_model_state"]["network.4.weight"], reference.average["network.4.weight"])
    trainer.test(model, data, ckpt_path=checkpoint.last_model_path, weights_only=True, verbose=False)
    check(model.state_dict(), reference.average)  # Lightning's own fails here
    check(Tiny.load_from_checkpoint(checkpoint.last_model_path).state_dict(), reference.average)


def test_resumes_exactly(tmp_path):
    def fit(epochs, resume=None):
        torch.manual_seed(0)
        model = Tiny()
        trainer = make_trainer(tmp_path, max_epochs=epochs, callbacks=[EMA(0.9), SaveEach()])
        trainer.fit(model, TinyData(), ckpt_path=resume, weights_only=True)
        return model.state_dict()

    class SaveEach(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt")

    fit(1)
    resumed = fit(2, resume=tmp_path / "0.ckpt")
    straight = fit(2)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


class Counting(nn.Flatten):
    def get_extra_state(self):
        return {"a": "setting"}

    def set_extra_state(self, state):
        assert state == {"a": "setting"}


def test_modules_with_extra_state(tmp_path):
    model = Tiny(network=nn.Sequential(Counting(), nn.Linear(192, 4)))
    make_trainer(tmp_path, callbacks=[EMA(0.9)]).fit(model, TinyData(16, 4))


def test_a_second_fit_begins_anew(tmp_path):
    ema, ends = EMA(0.9), []
    for _ in range(2):
        torch.manual_seed(0)
        model = Tiny()
        make_trainer(tmp_path, callbacks=[ema], max_epochs=2).fit(model, TinyData(16, 4))
        ends.append(model.state_dict())
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


def test_saved_while_the_average_is_validated(tmp_path):
    """An exception may end a validation, and another callback save."""

    class Save(Callback):
        def on_validation_batch_end(self, trainer, pl_module, *_):
            trainer.save_checkpoint(tmp_path / "within.ckpt")

        def on_validation_end(self, trainer, pl_module):
            trainer.save_checkpoint(tmp_path / "after.ckpt")

    make_trainer(tmp_path, callbacks=[EMA(0.9), Save()], max_epochs=2).fit(Tiny(), TinyData(16, 4))
    within, after = (torch.load(tmp_path / f"{name}.ckpt", weights_only=True) for name in ("within", "after"))
    for state in ("state_dict", "current_model_state"):
        assert all(torch.equal(value, within[state][name]) for name, value in after[state].items())
    assert any(
        not torch.equal(value, after["state_dict"][name]) for name, value in after["current_model_state"].items()
    )
