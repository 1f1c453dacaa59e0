"""Freezing by name and epoch: weights, statistics, optimizer, and what is refused."""

import textwrap

import pytest
import torch
from lightning.pytorch import Callback

from litlab.callbacks import Freeze, FreezeRule
from tests.conftest import ROOT
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from tests.processes import Python, ranks

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


def test_weights_and_statistics_stay_until_their_epoch(tmp_path):
    kept = fit(tmp_path, [FreezeRule(["network.0", "network.1"], epochs=2)])
    head, everything = {"network.4.weight"}, set(kept.states[0]) - IDLE - {"network.4.bias"}
    assert kept.changed() == [head, head, everything, everything]


def test_gradually_and_never(tmp_path):
    """The first rule that matches counts; the model is left as it was found."""
    kept = fit(tmp_path, [FreezeRule("network.4", 0), FreezeRule("network.1", 1), FreezeRule("*")], epochs=2)
    norm = {name for name in kept.states[0] if name.startswith("network.1.")}
    assert kept.changed() == [{"network.4.weight"}, {"network.4.weight"} | norm]


def test_settings_by_yaml(fit_images):
    rules = "{rules: [{params: network.5, epochs: 0}, {params: network, epochs: 1}]}"
    checked = fit_images("fit", f"--freeze={rules}", "--check")
    assert checked.code == 0, checked.err
    assert "170 of them trained" in checked.out


SCRIPT = textwrap.dedent("""
    import sys, torch
    sys.path.insert(0, sys.argv[1])
    from lightning.pytorch import seed_everything
    from litlab.callbacks import Freeze, FreezeRule
    from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
    import warnings; warnings.simplefilter("ignore")
    seed_everything(0, verbose=False)
    model, freeze = Tiny(), Freeze([FreezeRule(["network.0", "network.1"], epochs=1)])
    trainer = make_trainer(".", max_epochs=3, strategy="ddp", devices=2, callbacks=[freeze])
    trainer.fit(model, TinyData(samples=16, batch_size=2))
    torch.save(dict(model.named_parameters()), f"rank_{trainer.global_rank}.pt")
""")


def test_ranks_share_the_gradients_of_what_was_unfrozen(tmp_path):
    (tmp_path / "fit.py").write_text(SCRIPT)
    processes = [Python(tmp_path / "fit.py", ROOT, cwd=tmp_path, environment=of_rank) for of_rank in ranks(2)]
    printed = [process.communicate() for process in processes]
    assert [process.wait() for process in processes] == [0, 0], printed
    first, second = (torch.load(tmp_path / f"rank_{rank}.pt", weights_only=True) for rank in (0, 1))
    torch.manual_seed(0)
    assert not torch.equal(first["network.0.weight"], Tiny().network[0].weight)
    assert all(torch.equal(value, second[name]) for name, value in first.items())
