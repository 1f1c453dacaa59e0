"""ExactResume by itself, in this process; test_resume_matrix.py is from end to end."""

from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from litlab.checkpointing.resume import KEY
from litlab.errors import UserError
from litlab.optim import Schedule, WarmupDecay
from tests.litlab.callbacks.tiny import are_equal
from tests.litlab.checkpointing.in_process import EACH_STEP, Data, Draws, fit


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A fit of three epochs."""
    torch.set_num_threads(1)
    return fit(tmp_path_factory.mktemp("whole"), max_epochs=3)


@pytest.mark.parametrize("options", [{}, EACH_STEP])
@pytest.mark.parametrize("further", [-1, 9])
def test_an_epoch_that_max_steps_has_cut_short_goes_on(tmp_path, whole, options, further):
    """Neither as the next epoch nor from its start, and with the sums of its first part."""
    first, before = fit(tmp_path, options=options, max_steps=4)
    assert (before.global_step, first.drawn.keys() & {(1, 1), (1, 2)}) == (4, {(1, 1)})
    second, fitting = fit(tmp_path, resume=True, options=options, max_epochs=3, max_steps=further)
    expected, fitted = whole
    assert (fitting.global_step, fitting.current_epoch) == (fitted.global_step, 3)
    assert {**first.drawn, **second.drawn} == expected.drawn
    assert not second.drawn.keys() & first.drawn.keys()
    assert fitting.callback_metrics == fitted.callback_metrics
    assert are_equal(expected.state_dict(), second.state_dict())


def test_another_number_of_processes(tmp_path, whole):
    """Within an epoch it is refused, from its end nothing depends on it."""

    path = tmp_path / "last.ckpt"

    def fit_as_if_two(stop: tuple[int, int]) -> None:
        fit(tmp_path, stop)
        checkpoint = torch.load(path, weights_only=True)
        [rank] = checkpoint[KEY]
        checkpoint[KEY].append({**rank, "data_rank": 1})
        torch.save(checkpoint, path)

    fit_as_if_two((1, 3))
    says = r"^trainer.devices: .* that 2 data-parallel processes shared, .* makes 1 of"
    with pytest.raises(UserError, match=says):
        fit(tmp_path, resume=True)
    fit_as_if_two((1, 0))
    _, fitting = fit(tmp_path, resume=True, max_epochs=3)
    assert fitting.callback_metrics == whole[1].callback_metrics


@pytest.mark.filterwarnings("ignore:A `OneCycleLR`")
@pytest.mark.parametrize(
    ("scheduler", "stop"),
    [
        (WarmupDecay, (1, 3)),
        (lr_scheduler.CosineAnnealingLR, (2, 0)),
        (partial(lr_scheduler.OneCycleLR, max_lr=0.1), None),
    ],
)
def test_a_schedule_ends_with_a_run_that_goes_on_for_longer(tmp_path, scheduler, stop):
    module = partial(Draws, schedule=Schedule(scheduler, "step"))
    settings = {"accumulate_grad_batches": 1, "module": module}
    fit(tmp_path / "run", stop, max_epochs=3, **settings)
    _, fitting = fit(tmp_path / "run", resume=True, max_epochs=6, **settings)
    _, fitted = fit(tmp_path / "whole", max_epochs=6, **settings)
    ends = [run.optimizers[0].param_groups[0]["lr"] for run in (fitting, fitted)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)
    assert fitting.global_step == fitted.global_step


class Shuffled(Draws):
    """With a loader of plain Lightning, which shuffles."""

    def train_dataloader(self):
        return DataLoader(Data().dataset, 4, shuffle=True, num_workers=1)

    def on_train_batch_start(self, batch, batch_idx):
        super().on_train_batch_start(batch, batch_idx)
        self.drawn[self.current_epoch, batch_idx] = batch[0][:, 0].tolist()


@pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")
def test_the_order_of_a_plain_loader_goes_on_from_the_end_of_an_epoch(tmp_path):
    settings = {"module": Shuffled, "data": lambda: None, "max_epochs": 3, "options": {}}
    expected, _ = fit(tmp_path / "whole", **settings)
    fit(tmp_path / "run", (2, 1), **settings)
    resumed, _ = fit(tmp_path / "run", resume=True, **settings)
    assert resumed.drawn
    assert resumed.drawn.items() <= expected.drawn.items()
    assert len({str(order) for order in expected.drawn.values()}) > 4
