"""SWA: the mean that a plain torch loop gets, batch norms measured with it; which weights are validated and tested."""

from copy import deepcopy

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, update_bn

from litlab.callbacks import EMA, SWA
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:Checkpoint directory")
EPOCHS, FIRST = 5, 2


def falling(epoch):
    return 1 - 0.2 * epoch


class Model(Tiny):
    """With a schedule, a forward pass that takes images, and a batch norm that is frozen."""

    def __init__(self, rate=0.1) -> None:
        self.rate = rate
        torch.manual_seed(0)
        super().__init__(network=nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten(),
            nn.Linear(4 * 16, 4),
        ))  # fmt: skip

    def forward(self, images):
        return self.network(images)

    def on_train_epoch_start(self):
        self.network[4].eval()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.rate)
        return {"optimizer": optimizer, "lr_scheduler": LambdaLR(optimizer, falling)}


def by_hand(batches):
    """What torch's documentation does, with the rate of the first averaged epoch kept; the weights of each epoch."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average, trained = AveragedModel(model), []
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = 0.1 * falling(min(epoch, FIRST))
        model.on_train_epoch_start()
        for images, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        trained.append(deepcopy(model.state_dict()))
        if epoch >= FIRST:
            average.update_parameters(model)
    frozen = deepcopy(average.module.network[4].state_dict())
    update_bn(batches, average.module)
    average.module.network[4].load_state_dict(frozen)
    return trained, average.module.state_dict()


class Watch(Callback):
    """Keeps the weights that are validated in each epoch, and the rates."""

    def __init__(self):
        self.validated, self.rates = [], []

    def on_validation_batch_start(self, trainer, pl_module, *_):
        if not trainer.sanity_checking and len(self.validated) <= trainer.current_epoch:
            self.validated.append(deepcopy(pl_module.state_dict()))

    def on_train_batch_start(self, trainer, pl_module, *_):
        self.rates.append(float(trainer.optimizers[0].param_groups[0]["lr"]))
        assert type(trainer.optimizers[0].param_groups[0]["lr"]) is type(pl_module.rate)


def equal(state, expected):
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["", "in a tensor"])
def test_the_mean_of_the_last_epochs_is_validated_saved_and_tested(tmp_path, rate):
    watch, checkpoint = Watch(), ModelCheckpoint(dirpath=tmp_path, save_last=True)
    trainer = make_trainer(
        tmp_path, max_epochs=EPOCHS, enable_checkpointing=True, callbacks=[SWA(FIRST / EPOCHS), watch, checkpoint]
    )
    model, data = Model(rate), TinyData(16, 4)
    trainer.fit(model, data)
    trained, average = by_hand(list(data.train_dataloader()))
    for epoch in range(FIRST):
        equal(watch.validated[epoch], trained[epoch])
    for state in (watch.validated[-1], model.state_dict()):
        equal(state, average)
    assert watch.rates == pytest.approx([0.1 * falling(min(epoch, FIRST)) for epoch in range(EPOCHS) for _ in range(4)])
    saved = torch.load(checkpoint.last_model_path, weights_only=True)
    equal(saved["state_dict"], average)
    equal(saved["current_model_state"], trained[-1])
    trainer.test(model, data, ckpt_path=checkpoint.last_model_path, weights_only=True, verbose=False)
    equal(model.state_dict(), average)
    assert model.network[1].momentum == 0.1


@pytest.mark.parametrize("callback", [SWA(0.9), EMA(0.9, start_step=1000)], ids=["swa", "ema"])
def test_before_there_is_an_average_the_weights_in_training_are_validated_saved_and_kept(tmp_path, callback):
    watch = Watch()
    trainer = make_trainer(tmp_path, max_epochs=10, limit_train_batches=1, callbacks=[callback, watch], max_steps=3)
    model = Model()
    trainer.fit(model, TinyData())
    start = Model().state_dict()
    assert not torch.equal(watch.validated[0]["network.0.weight"], start["network.0.weight"])
    equal(model.state_dict(), watch.validated[-1])


def test_a_run_that_is_resumed_for_longer_averages_its_own_last_epochs(tmp_path):
    def fit(epochs, resume=None):
        model, checkpoint = Model(), ModelCheckpoint(dirpath=tmp_path, save_last=True)
        trainer = make_trainer(
            tmp_path, max_epochs=epochs, enable_checkpointing=True, callbacks=[SWA(0.5), checkpoint], logger=False
        )
        trainer.fit(model, TinyData(16, 4), ckpt_path=resume, weights_only=True)
        return torch.load(checkpoint.last_model_path, weights_only=True)

    assert fit(2)["averaging_state"]["n_averaged"] == 1
    longer = fit(6, tmp_path / "last.ckpt")
    assert longer["averaging_state"]["n_averaged"] == 3
    (factors,) = [state["factors"] for key, state in longer["callbacks"].items() if key.startswith("SWA")]
    assert factors == pytest.approx([falling(3)])


def test_what_it_refuses(tmp_path):
    trainer = make_trainer(tmp_path, max_epochs=-1, max_steps=2, callbacks=[SWA()])
    with pytest.raises(UserError, match=r"^swa\.start: .*trainer\.max_epochs"):
        trainer.fit(Model(), TinyData())
    with pytest.raises(UserError, match=r"^swa: trainer\.precision bf16-true .*; set trainer\.precision to "):
        make_trainer(tmp_path, callbacks=[SWA()], max_epochs=2, precision="bf16-true").fit(Tiny(), TinyData())
    with pytest.raises(UserError, match=r"^swa: Tiny has batch norms, and no forward"):
        make_trainer(tmp_path, callbacks=[SWA()]).fit(Tiny(), TinyData())


def test_a_run_of_one_epoch_is_averaged_at_the_optimizers_own_rate(tmp_path):
    """Not at the beginning of its warm-up."""

    class Warming(Model):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=self.rate)
            return {"optimizer": optimizer, "lr_scheduler": LambdaLR(optimizer, lambda epoch: 0.01)}

    watch, swa = Watch(), SWA()
    make_trainer(tmp_path, max_epochs=1, callbacks=[swa, watch]).fit(Warming(), TinyData(16, 4))
    assert watch.rates == pytest.approx([0.1] * 4)


def test_a_run_that_ends_before_the_averaging_says_so(tmp_path, caplog):
    make_trainer(tmp_path, max_epochs=8, max_steps=4, callbacks=[SWA()]).fit(Model(), TinyData(16, 4))
    assert "swa: the run ended before the end of epoch 7; nothing was averaged." in caplog.text


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks")
def test_an_average_of_another_kind_is_not_taken_over(tmp_path):
    checkpoint = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    model = Model()
    make_trainer(tmp_path, max_epochs=2, enable_checkpointing=True, callbacks=[EMA(0.5), checkpoint]).fit(
        model, TinyData(16, 4)
    )
    swa, watch = SWA(0.5), Watch()
    trainer = make_trainer(tmp_path, max_epochs=4, enable_checkpointing=True, callbacks=[swa, watch, checkpoint])
    trainer.fit(Model(), TinyData(16, 4), ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    saved = torch.load(checkpoint.last_model_path, weights_only=True)
    assert saved["averaging_state"]["n_averaged"] == 2  # its own epochs
