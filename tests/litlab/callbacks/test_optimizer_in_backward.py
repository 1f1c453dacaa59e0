"""The optimizer's step inside the backward pass is the same step, with one gradient at a time."""

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

from litlab.callbacks import EMA, NaNGuard, OptimizerInBackward
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Failing, Tiny, TinyData, make_trainer
from tests.litlab.checkpointing.resuming import leaves, same

pytestmark = pytest.mark.filterwarnings("ignore:Checkpoint directory")
OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "foreach": True}),
}


class Grouped(Tiny):
    """With two groups, a tied weight, a schedule by step, and a note of how many gradients there are at once."""

    def __init__(self, optimizer="SGD") -> None:
        torch.manual_seed(0)
        tied = nn.Linear(36, 36)
        layers = [nn.Conv2d(3, 1, 3), nn.Flatten(), tied, nn.ReLU(), tied, nn.Linear(36, 4)]
        super().__init__(network=nn.Sequential(*layers))
        self.kind, self.most, self.rates = optimizer, 0, []

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

    def on_train_batch_end(self, *_):
        self.rates.append([group["lr"] for group in self.trainer.optimizers[0].param_groups])


def fit(folder, model, *callbacks):
    trainer = make_trainer(folder, max_epochs=2, callbacks=[*callbacks, EMA(0.5)])
    trainer.fit(model, TinyData(12, 4))
    return trainer.global_step, dict(leaves([model.state_dict(), trainer.optimizers[0].state_dict()]))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_same_as_the_plain_optimizer_with_one_gradient_at_a_time(tmp_path, kind):
    plain, inside = Grouped(kind), Grouped(kind)
    steps, state = fit(tmp_path, plain)
    steps_inside, state_inside = fit(tmp_path, inside, OptimizerInBackward())
    assert steps_inside == steps == 6
    assert inside.rates == plain.rates
    assert state_inside.keys() == state.keys()
    assert all(same(value, state_inside[name]) for name, value in state.items())  # the weights are EMA's
    assert (plain.most, inside.most) == (5, 0)  # as a gradient arrives, no other is there
    inside.network(torch.randn(1, 3, 8, 8)).sum().backward()  # after the fit it is a plain model
    assert all(parameter.grad is not None for parameter in inside.parameters())


@pytest.mark.parametrize(
    ("callbacks", "settings", "key"),
    [
        ([], {"accumulate_grad_batches": 2}, "trainer.accumulate_grad_batches"),
        ([], {"gradient_clip_val": 0.5}, "trainer.gradient_clip_val"),
        ([], {"strategy": "ddp"}, "trainer.devices"),
        ([], {"plugins": [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))]}, "trainer.precision"),
        ([NaNGuard()], {}, "NaNGuard"),
    ],
)
def test_refuses_what_needs_all_gradients(tmp_path, callbacks, settings, key):
    callback = OptimizerInBackward()
    trainer = make_trainer(tmp_path, callbacks=[*callbacks, callback], **settings)
    with pytest.raises(UserError, match=rf"^trainer\.callbacks: OptimizerInBackward .*, and {key} needs more; "):
        callback.setup(trainer, Tiny(), "fit")


def test_a_fit_that_failed_leaves_nothing_in_the_model(tmp_path):
    model = Failing()
    with pytest.raises(ZeroDivisionError):
        make_trainer(tmp_path, callbacks=[OptimizerInBackward()]).fit(model, TinyData())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
