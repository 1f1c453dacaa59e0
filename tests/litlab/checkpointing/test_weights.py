"""Weights that are taken over from a checkpoint."""

import math

import pytest
import torch
from torch import nn

from litlab.checkpointing.warm_start import initialise
from litlab.errors import UserError
from litlab.runs.config_diff import check_weights


class Network(nn.Sequential):
    """A network with a buffer that masks use: infinity belongs there."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.register_buffer("mask", torch.full((2, 2), -math.inf))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("names", [["0.weight"], ["0.bias", "1.weight"], ["1.running_var"], ["mask"]])
def test_weights_that_can_only_answer_nan_are_refused(tmp_path, names, value):
    model = Network()
    checkpoint = {"state_dict": model.state_dict(), "pytorch-lightning_version": "2.6.6"}
    check_weights(model, checkpoint, {})
    for name in names:
        checkpoint["state_dict"][name].view(-1)[-1] = value
    torch.save(checkpoint, tmp_path / "some.ckpt")
    if names[0] in ("mask", "1.running_var") and not math.isnan(value):
        check_weights(model, checkpoint, {})
        return
    more = " and 1 more tensors" if len(names) > 1 else ""
    line = f"^the checkpoint holds NaN or infinity in {names[0]}{more}; use an earlier one.$"
    with pytest.raises(UserError, match=line):
        check_weights(model, checkpoint, {})
    with pytest.raises(UserError, match=line):
        initialise(Network(), tmp_path / "some.ckpt")
