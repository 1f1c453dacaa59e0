"""When a run stops early, and where it was interrupted and resumed."""

import pytest

from litlab.callbacks.early_stopping import RunEarlyStopping
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from litlab.cli.preflight import Preflight
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, fit

pytestmark = pytest.mark.filterwarnings("ignore:You're resuming")


SCORES = [0.5, 0.4, 0.3, 0.6, 0.7, 0.6, 0.8, 0.9]  # of the eight epochs


class Scripted(Tiny):
    def validation_step(self, batch, batch_idx):
        self.log_dict(dict.fromkeys(["val/acc", "mine"], SCORES[self.current_epoch]))


def epochs(folder, monitor, mode, most=8, resume=None) -> int:
    stopping = RunEarlyStopping(monitor, mode, patience=2)
    callbacks = [stopping, ExactResume(), RunCheckpoint(str(folder))]
    settings = {"max_epochs": most, "num_sanity_val_steps": 0, "enable_checkpointing": True}
    return fit(folder, Scripted(), *callbacks, resume=resume, **settings).current_epoch


@pytest.mark.parametrize(("most", "monitor", "mode"), [(2, "val/acc", None), (8, "mine", "max")])
def test_a_resumed_run_trains_as_many_epochs(tmp_path, caplog, most, monitor, mode):
    assert epochs(tmp_path, monitor, mode, most) == min(most, 3)
    assert epochs(tmp_path, monitor, mode, resume=tmp_path / "last.ckpt") == 3
    assert f"Monitored metric {monitor} did not improve" in caplog.text


def test_a_metric_that_no_validation_logs_is_refused(tmp_path, caplog):
    """After the first validation; a sanity check may log less. tests/litlab/test_advice.py has the
    same of checkpoints.
    """
    with pytest.raises(UserError, match=r"^early_stopping\.monitor: .*'val/acc'") as refused:
        fit(tmp_path, Tiny(), Preflight(), RunEarlyStopping("val/ac", "max"))
    assert f"warning: {refused.value}" in caplog.messages


def test_a_metric_of_the_training_is_looked_at_when_an_epoch_ends(tmp_path):
    """Also where validations within it come first, when it is not known."""
    fit(tmp_path, Tiny(), RunEarlyStopping("train/loss"), val_check_interval=0.5)
