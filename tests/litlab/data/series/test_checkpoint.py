"""What a checkpoint carries of the series."""

import pytest
import torch

from litlab.data import SeriesData
from litlab.errors import UserError
from tests.litlab.data.series.conftest import SeriesRecorder, trained, wave


def test_the_checkpoints_scaler_is_used(make, make_trainer):
    """Whether it is loaded after `setup`, as Lightning does it, or before."""
    data, model = make(), SeriesRecorder()
    data.setup("test")
    plain = data.test_dataloader().dataset[torch.arange(3)]["past"]
    ridge = data.ridge()
    other = {**data.state_dict(), "mean": [0.0, 0.0], "scale": [1.0, 2.0], "naive_error": [3.0, 4.0]}
    data.load_state_dict(other)
    assert not data.ridge().equal(ridge)
    later = make()
    later.load_state_dict(other)
    make_trainer().test(model, later, verbose=False)
    expected = torch.tensor(wave(100)[74:80] / [1, 2], dtype=torch.float32)
    for batch in (data.test_dataloader().dataset[torch.arange(3)]["past"], model.all("test", "past")):
        assert not batch[0].equal(plain[0])
        torch.testing.assert_close(batch[0], expected)
    assert later.naive_error.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"targets": ["load", "cold"]},
            "data.targets: the checkpoint was trained with [load, cold], "
            "here it is [load, heat]; set it to [load, cold]",
        ),
        ({"context_length": 9}, "data.context_length: the checkpoint was trained with 9, here it is 6; set it to 9"),
        ({"horizon": 9}, "data.horizon: the checkpoint was trained with 9, here it is 3; set it to 9"),
        ({"season": 9}, "data.season: the checkpoint was trained with 9, here it is 4; set it to 9"),
        (
            {"covariates": ["day"]},
            "data.covariates: the checkpoint was trained with [day], here it is []; set it to [day]",
        ),
        (
            {"step": {"seconds": 0, "months": 1, "at_end": False}},
            "data: the rows are 1 hour apart, the checkpoint was trained on 1 month; use rows with that step",
        ),
        (
            {"step": {"seconds": 86_400, "months": 0, "at_end": False}, "season": 7},  # the cause, not what follows
            "data: the rows are 1 hour apart, the checkpoint was trained on 1 day; use rows with that step",
        ),
        (
            {"utc": True},
            "data: the times of the checkpoint have UTC offsets, those of the data have none; write them alike",
        ),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(make, change, message):
    data = make()
    data.setup("test")
    state = {**data.state_dict(), **change}
    with pytest.raises(UserError) as error:
        data.load_state_dict(state)
    assert str(error.value) == message
    later = make()
    later.load_state_dict(state)
    with pytest.raises(UserError) as error:
        later.setup("test")
    assert str(error.value) == message


def test_hyperparameters_rebuild_the_data(make, make_trainer, tmp_path):
    data, checkpoint = trained(make, make_trainer, tmp_path, covariates=["hour"], split=[0.6, 0.2, 0.2])
    again = SeriesData.load_from_checkpoint(checkpoint, weights_only=True)
    assert dict(again.hparams) == dict(data.hparams)
    assert again.source == data.source
