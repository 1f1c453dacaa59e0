"""EMA and SWA give the averages that plain code gives, which are validated, saved, tested and
resumed.

tests/litlab/checkpointing resumes both within an epoch, tests/litlab/parallel averages over several
processes.
"""

from copy import deepcopy

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from litlab.callbacks import EMA, SWA
from tests.litlab.callbacks import tiny
from tests.litlab.callbacks.tiny import Tiny, TinyData, are_equal

pytestmark = pytest.mark.filterwarnings(
    "ignore:The dirpath has changed", "ignore:.*callbacks used to create"
)
DECAY = 0.25  # reached by the warm-up in update 2: (1 + 2) / (10 + 2)
EPOCHS, FIRST = 5, 2


def load(path):
    return torch.load(path, weights_only=True)


def fit(folder, model, *callbacks, **options):
    """Fit on four batches an epoch; the checkpoint of the last epoch is in FOLDER/last.ckpt."""
    options |= {"enable_checkpointing": True, "num_sanity_val_steps": 0, "data": TinyData(16, 4)}
    return tiny.fit(folder, model, *callbacks, ModelCheckpoint(folder, save_last=True), **options)


class Model(Tiny):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], [LambdaLR(optimizer, lambda epoch: 1 - 0.2 * epoch)]


class Watch(Callback):
    """Keeps weights and rates after each batch, and the weights that are validated in each epoch.

    It comes after the callback that averages.
    """

    def __init__(self):
        self.trained, self.validated, self.rates = [], [], []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.trained.append(deepcopy(pl_module.state_dict()))
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_validation_epoch_start(self, trainer, pl_module):
        self.validated.append(deepcopy(pl_module.state_dict()))


def average_steps(states):
    """Return the EMA of every second batch, of which the first is copied."""
    average, *states = states[1::2]
    for number, state in enumerate(states):
        decay = min(DECAY, (1 + number) / (10 + number))
        average = {name: decay * old + (1 - decay) * state[name] for name, old in average.items()}
    return average


def average_epochs(states):
    states = states[3::4][FIRST:]
    return {name: sum(state[name] for state in states) / len(states) for name in states[0]}


@pytest.mark.parametrize(
    ("callback", "compute_average", "options"),
    [
        (EMA(DECAY), average_steps, {"max_epochs": 2, "accumulate_grad_batches": 2}),
        (SWA(FIRST / EPOCHS), average_epochs, {"max_epochs": EPOCHS}),
    ],
)
def test_the_average_is_validated_saved_loaded_and_tested(
    tmp_path, callback, compute_average, options
):
    watch, model, path = Watch(), Model(), tmp_path / "last.ckpt"
    trainer = fit(tmp_path, model, callback, watch, **options)
    last, saved = watch.trained[-1], load(path)
    average = compute_average(watch.trained)
    average["network.1.num_batches_tracked"] = last["network.1.num_batches_tracked"]
    states = [watch.validated[-1], deepcopy(model.state_dict()), saved["state_dict"]]
    trainer.test(model, TinyData(16, 4), ckpt_path=path, weights_only=True, verbose=False)
    for state in (*states, model.state_dict()):  # of the test, where Lightning's own fails
        torch.testing.assert_close(dict(state), average)
    assert are_equal(saved["current_model_state"], last)
    assert not torch.equal(last["network.4.weight"], average["network.4.weight"])
    if isinstance(callback, SWA):
        for epoch in range(FIRST):
            assert are_equal(watch.validated[epoch], watch.trained[4 * epoch + 3])
        assert watch.rates == pytest.approx([0.05] * 3 + [0.04] * 4 + [0.03] * 13)


def test_a_run_that_is_resumed_for_longer_goes_on_with_its_average(tmp_path):
    fit(tmp_path, Model(), SWA(0.5), max_epochs=2)
    watch = Watch()
    fit(tmp_path / "longer", Model(), SWA(0.5), watch, max_epochs=6, resume=tmp_path / "last.ckpt")
    for folder, count in ((tmp_path, 1), (tmp_path / "longer", 5)):
        assert load(folder / "last.ckpt")["averaging_state"]["n_averaged"] == count
    assert watch.rates == pytest.approx([0.04] * 16)


def test_a_run_that_ends_within_an_epoch_averages_its_last_weights(tmp_path):
    """In float32, where they have 16 bits; two layers share them."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = Tiny(network=nn.Sequential(nn.Flatten(), nn.Linear(192, 4), first, second))
    watch, options = Watch(), {"precision": "bf16-true", "max_epochs": -1, "max_steps": 10}
    fit(tmp_path, model, SWA(0.5), watch, **options)  # of two and a half epochs
    saved = load(tmp_path / "last.ckpt")
    average = saved["state_dict"]
    for name, last in saved["current_model_state"].items():
        expected = (watch.trained[7][name].float() + last.float()) / 2
        torch.testing.assert_close(average[name], expected)
    assert last.dtype == torch.bfloat16
    assert torch.equal(average["network.2.weight"], average["network.3.weight"])


def test_a_run_that_ends_early_tells(tmp_path, caplog):
    def stop(trainer, _):
        trainer.should_stop = True

    fit(tmp_path, Model(), SWA(0.5), LambdaCallback(on_train_epoch_end=stop), max_epochs=4)
    assert "swa: the run ended before epoch 3" in caplog.text


def test_saved_while_the_average_is_validated(tmp_path):
    """An exception may end a validation, and another callback save."""

    def save(name):
        return lambda trainer, *_: trainer.save_checkpoint(tmp_path / f"{name}.ckpt")

    saving = LambdaCallback(on_validation_batch_end=save("within"), on_train_end=save("end"))
    fit(tmp_path, Tiny(), EMA(0.9), saving, max_epochs=2)
    after, within, end = (load(tmp_path / f"{name}.ckpt") for name in ("last", "within", "end"))
    for state in ("state_dict", "current_model_state"):
        assert are_equal(after[state], within[state])
        assert are_equal(after[state], end[state])
    assert not are_equal(after["state_dict"], after["current_model_state"])


def test_a_validation_that_fails_leaves_the_weights_of_the_training(tmp_path):
    def fail(trainer, model):
        raise RuntimeError

    watch, model = Watch(), Model()
    failing = LambdaCallback(on_validation_epoch_start=fail)
    with pytest.raises(RuntimeError):
        fit(tmp_path, model, EMA(DECAY), watch, failing, max_epochs=1)
    assert are_equal(model.state_dict(), watch.trained[-1])
    assert not are_equal(model.state_dict(), watch.validated[-1])
