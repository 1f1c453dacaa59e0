import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch import nn

from litlab.callbacks import EMA, NaNGuard, OptimizerInBackward
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Failing, Tiny, TinyData, make_trainer
from tests.litlab.checkpointing.in_process import fit
from tests.litlab.checkpointing.resuming import leaves, same

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
]
OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "foreach": True}),
    "fused": (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01}),
}


class Grouped(Tiny):
    """With two groups, a tied weight, a schedule by step, and a note of how many gradients there are at once."""

    def __init__(self, optimizer="SGD") -> None:
        torch.manual_seed(0)
        tied = nn.Linear(36, 36)
        super().__init__(
            network=nn.Sequential(nn.Conv2d(3, 1, 3), nn.Flatten(), tied, nn.ReLU(), tied, nn.Linear(36, 4))
        )
        self.kind, self.most = optimizer, 0

    def configure_optimizers(self):
        cls, settings = OPTIMIZERS[self.kind]
        groups = [{"params": self.network[0].parameters(), "lr": 0.02}, {"params": self.network[1:].parameters()}]
        optimizer = cls(groups, **settings)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_start(self):
        def note(_):
            self.most = max(self.most, sum(p.grad is not None for p in self.parameters()))

        for parameter in self.parameters():
            parameter.register_hook(note)


class Rates(Callback):
    def __init__(self):
        self.rates = []

    def on_train_batch_end(self, trainer, *_):
        self.rates.append((trainer.global_step, [group["lr"] for group in trainer.optimizers[0].param_groups]))


def fit_grouped(folder, model, *callbacks, **settings):
    rates, average = Rates(), EMA(0.5)
    trainer = make_trainer(folder, max_epochs=2, callbacks=[*callbacks, average, rates], **settings)
    trainer.fit(model, TinyData(12, 4))
    return trainer, rates.rates, dict(leaves([model.state_dict(), trainer.optimizers[0].state_dict()]))


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "fused", "RMSprop"])
def test_same_as_the_plain_optimizer_with_one_gradient_at_a_time(tmp_path, kind):
    plain, inside = Grouped(kind), Grouped(kind)
    trainer, rates, state = fit_grouped(tmp_path, plain)
    other, rates_inside, state_inside = fit_grouped(tmp_path, inside, OptimizerInBackward())
    assert rates_inside == rates
    assert other.global_step == trainer.global_step == 6
    assert state_inside.keys() == state.keys()
    assert all(same(value, state_inside[name]) for name, value in state.items())  # the weights are EMA's
    assert (plain.most, inside.most) == (5, 0)  # as a gradient arrives, no other is there
    inside.network(torch.randn(1, 3, 8, 8)).sum().backward()  # after the fit it is a plain model
    assert all(parameter.grad is not None for parameter in inside.parameters())


@pytest.mark.parametrize("callbacks", [([True], [True]), ([True], []), ([], [True])], ids=str)
def test_resumes_in_the_middle_of_an_epoch_with_and_without_it(tmp_path, callbacks):
    """Draws has batch norm and dropout, and Adam."""
    before, after = ([OptimizerInBackward() for _ in which] for which in callbacks)
    settings = {"accumulate_grad_batches": 1}
    model, trainer = fit(tmp_path / "whole", **settings)
    fit(tmp_path, stop=("batch", 1, 3), callbacks=before, **settings)
    resumed, resuming = fit(tmp_path, resume=True, callbacks=after, **settings)
    for one, other in ((model, resumed), (trainer.optimizers[0], resuming.optimizers[0])):
        expected, found = dict(leaves(one.state_dict())), dict(leaves(other.state_dict()))
        assert expected.keys() == found.keys()
        assert all(same(value, found[name]) for name, value in expected.items())
    assert resumed.rates.items() <= model.rates.items()


class LooksAtGradients(Callback):
    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        pass


class Manual(Tiny):
    automatic_optimization = False


@pytest.mark.parametrize(
    ("model", "callbacks", "settings", "key"),
    [
        (Tiny, [], {"accumulate_grad_batches": 2}, "trainer.accumulate_grad_batches; set it to 1"),
        (Tiny, [GradientAccumulationScheduler({1: 3})], {}, "GradientAccumulationScheduler; set it to null"),
        (Tiny, [], {"gradient_clip_val": 0.5}, "trainer.gradient_clip_val; set it to null"),
        (Tiny, [], {"strategy": "ddp"}, "trainer.devices; set it to 1"),
        (Tiny, [NaNGuard()], {}, "nan_guard; set it to null"),
        (Tiny, [LooksAtGradients()], {}, "LooksAtGradients; set it to null or leave it out"),
        (Manual, [], {}, "model Manual"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_what_needs_all_gradients(tmp_path, model, callbacks, settings, key):
    callback = OptimizerInBackward()
    trainer = make_trainer(tmp_path, callbacks=[*callbacks, callback], **settings)
    with pytest.raises(UserError, match=rf"^trainer\.callbacks: OptimizerInBackward .* for {key}.*, or leave Opt"):
        callback.setup(trainer, model(), "fit")


def test_refuses_gradient_scaling(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.precision_plugin.scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(UserError, match=r"for trainer\.precision 16-mixed; use"):
        OptimizerInBackward().setup(trainer, Tiny(), "fit")


def test_a_fit_that_failed_leaves_nothing_in_the_model(tmp_path):
    model = Failing()
    with pytest.raises(ZeroDivisionError):
        make_trainer(tmp_path, callbacks=[OptimizerInBackward()]).fit(model, TinyData())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
