import pytest
import torch

from litlab.callbacks import FreeGradients
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Noting(Tiny):
    """Notes in each forward pass of the training whether there are gradients."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.during, self.after = [], []

    def _have_gradients(self) -> bool:
        return any(parameter.grad is not None for parameter in self.parameters())

    def training_step(self, batch, batch_idx):
        self.during.append(self._have_gradients())
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.after.append(self._have_gradients())


class Keeping(Noting):
    def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
        super().optimizer_zero_grad(epoch, batch_idx, optimizer)


@pytest.mark.parametrize(
    ("model", "accumulate", "during"),
    [
        (Noting, 1, [False] * 10),
        (Noting, 2, [False, True, False, True, False] * 2),
        (Keeping, 1, [False, True, True, True, True] * 2),  # Lightning's way; it frees them before a validation
    ],
)
def test_only_gradients_that_are_accumulated_are_there_in_a_forward_pass(tmp_path, model, accumulate, during):
    def fit(*callbacks):
        module = model()
        trainer = make_trainer(tmp_path, max_epochs=2, accumulate_grad_batches=accumulate, callbacks=[*callbacks])
        trainer.fit(module, TinyData(20, 4))
        return module

    module, plain = fit(FreeGradients()), fit()
    assert module.during == during
    assert all(module.after)
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), plain.parameters(), strict=True))
