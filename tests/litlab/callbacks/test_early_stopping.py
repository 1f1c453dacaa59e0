"""When a run stops early, and where it was interrupted and resumed."""

from contextlib import nullcontext

import pytest

from litlab.callbacks.early_stopping import RunEarlyStopping
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from tests.litlab.callbacks.tiny import Tiny, fit

pytestmark = pytest.mark.filterwarnings("ignore:Checkpoint directory", "ignore:You're resuming")


class Scripted(Tiny):
    """Logs the scores of the epochs."""

    def __init__(self, scores: list[float], stop: int | None = None):
        super().__init__()
        self.scores, self.stop = scores, stop

    def on_train_epoch_start(self):
        if self.current_epoch == self.stop:
            raise KeyError

    def validation_step(self, batch, batch_idx):
        self.log_dict(dict.fromkeys(["val/acc", "val/loss", "mine"], self.scores[self.current_epoch]))


def epochs(folder, model, resume=None, monitor="val/acc", mode=None, patience=1) -> int:
    callbacks = [RunEarlyStopping(monitor, mode, patience=patience), ExactResume(), RunCheckpoint(str(folder))]
    settings = {"max_epochs": len(model.scores), "num_sanity_val_steps": 0, "enable_checkpointing": True}
    return fit(folder, model, *callbacks, resume=resume, **settings).current_epoch


RISING_LATE = [0.5, 0.4, 0.3, 0.6, 0.7, 0.6, 0.8, 0.9]


@pytest.mark.parametrize("stop", [2, None])
def test_a_resumed_run_trains_as_many_epochs(tmp_path, stop):
    with nullcontext() if stop is None else pytest.raises(KeyError):
        assert epochs(tmp_path, Scripted(RISING_LATE, stop), patience=2) == 3
    assert epochs(tmp_path, Scripted(RISING_LATE), tmp_path / "last.ckpt", patience=2) == 3


def test_direction(tmp_path):
    falling = Scripted([0.5, 0.4, 0.3])
    assert epochs(tmp_path, falling, monitor="val/loss") == 3
    assert epochs(tmp_path, falling, monitor="mine", mode="max") == 2
