"""Freezing by name and epoch; tests/litlab/parallel thaws with several processes."""

import pytest
import torch
from lightning.pytorch import Callback

from litlab.callbacks import Freeze, FreezeRule
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:The number of training batches")
IDLE = {"network.0.bias"}  # before a norm, a bias has no gradient


class Epochs(Callback):
    """Keeps the state after each epoch."""

    def __init__(self) -> None:
        self.states: list[dict] = []

    def on_fit_start(self, trainer, pl_module):
        self.states.append({name: value.clone() for name, value in pl_module.state_dict().items()})

    on_train_epoch_end = on_fit_start

    def changed(self) -> list[set[str]]:
        """For each epoch the names of what it has changed."""
        pairs = zip(self.states, self.states[1:], strict=False)
        return [{name for name in new if not torch.equal(old[name], new[name])} - IDLE for old, new in pairs]


def fit(folder, rules, epochs=4):
    model, kept = Tiny(), Epochs()
    model.network[4].bias.requires_grad_(False)  # the network's own decision
    make_trainer(folder, max_epochs=epochs, callbacks=[Freeze(rules), kept]).fit(model, TinyData())
    assert not model.network[4].bias.requires_grad
    assert all(p.requires_grad for name, p in model.named_parameters() if name != "network.4.bias")
    return kept


def test_gradually_and_never(tmp_path):
    """Weights and statistics; the first rule that matches counts; the model is left as it was found."""
    kept = fit(tmp_path, [FreezeRule(["network.4"], 0), FreezeRule("network.1", 1), FreezeRule("*")], epochs=2)
    norm = {name for name in kept.states[0] if name.startswith("network.1.")}
    assert kept.changed() == [{"network.4.weight"}, {"network.4.weight"} | norm]
