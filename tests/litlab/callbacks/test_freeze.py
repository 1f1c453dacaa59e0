"""Freezing by name and epoch; tests/litlab/parallel thaws with several processes."""

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from lightning.pytorch import Callback

from litlab.callbacks import Freeze, FreezeRule
from tests.litlab.callbacks.tiny import Tiny, fit

pytestmark = pytest.mark.filterwarnings("ignore:The number of training batches")


class Epochs(Callback):
    """Keeps the state after each epoch."""

    def __init__(self) -> None:
        self.states: list[dict] = []

    def on_fit_start(self, trainer, pl_module):
        self.states.append(deepcopy(pl_module.state_dict()))

    on_train_epoch_end = on_fit_start


def test_gradually_and_never(tmp_path):
    """Weights and statistics; the first rule that matches counts; the model is left as it was found."""
    rules = [FreezeRule(["network.4"], 0), FreezeRule("network.1", 1), FreezeRule("*")]
    model, kept = Tiny(), Epochs()
    model.network[4].bias.requires_grad_(False)  # the network's own decision
    fit(tmp_path, model, Freeze(rules), kept, max_epochs=2)
    assert [name for name, weight in model.named_parameters() if not weight.requires_grad] == ["network.4.bias"]
    changed = [{name for name in new if not torch.equal(old[name], new[name])} for old, new in pairwise(kept.states)]
    norm = {name for name in kept.states[0] if name.startswith("network.1.")}
    assert changed == [{"network.4.weight"}, {"network.4.weight"} | norm]
