"""Freezing by name and epoch: weights, statistics, optimizer, and what is refused."""

import math
import re
import textwrap
from functools import partial

import pytest
import torch
from lightning.pytorch import Callback
from torch import nn

from litlab.callbacks import Freeze, FreezeRule
from litlab.errors import UserError
from litlab.tasks import Classifier
from tests.conftest import ROOT
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from tests.processes import Python, ranks

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:The number of training batches")
BODY = [FreezeRule(["network.0", "network.1"], epochs=2)]  # convolution and norm


class Epochs(Callback):
    """Keeps the state after each epoch, and how many groups the optimizer has."""

    def __init__(self) -> None:
        self.states: list[dict] = []
        self.groups: list[int] = []

    def on_fit_start(self, trainer, pl_module):
        self._keep(trainer, pl_module)

    def on_train_epoch_end(self, trainer, pl_module):
        self._keep(trainer, pl_module)

    def _keep(self, trainer, module):
        self.states.append({name: value.clone() for name, value in module.state_dict().items()})
        self.groups.append(len(trainer.optimizers[0].param_groups))

    def changed(self) -> list[set[str]]:
        """For each epoch the names of what it has changed."""
        pairs = zip(self.states, self.states[1:], strict=False)
        return [{name for name in new if not torch.equal(old[name], new[name])} for old, new in pairs]


def fit(tmp_path, rules, model=None, epochs=4):
    kept = Epochs()
    model = model or Tiny()
    freeze = Freeze(rules)
    make_trainer(tmp_path, max_epochs=epochs, callbacks=[freeze, kept]).fit(model, TinyData())
    return model, kept


def test_weights_and_statistics_stay_until_their_epoch(tmp_path, caplog):
    caplog.set_level("INFO")
    model, kept = fit(tmp_path, BODY)
    head = {"network.4.weight", "network.4.bias"}
    all_of_it = set(kept.states[0]) - {"network.0.bias"}  # before a norm, a bias has no gradient
    assert [changed - {"network.0.bias"} for changed in kept.changed()] == [head, head, all_of_it, all_of_it]
    assert set(kept.groups) == {1}
    assert "Epoch 3: network.0 (2), network.1 (2) are trained from here on." in caplog.text
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_gradually_and_never(tmp_path):
    """The first rule that matches counts; the model is left as it was found."""
    rules = [FreezeRule("network.4", 0), FreezeRule("network.1", 1), FreezeRule("*")]
    model, kept = fit(tmp_path, rules, epochs=2)
    norm = {name for name in kept.states[0] if name.startswith("network.1.")}
    head = {"network.4.weight", "network.4.bias"}
    assert kept.changed() == [head, head | norm]
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_optimizer_has_only_what_is_trained_some_time(tmp_path):
    class Model(Classifier):
        def configure_optimizers(self):
            self.made = super().configure_optimizers()
            return self.made

    network = nn.Sequential(*Tiny().network)
    network[4].bias.requires_grad_(False)  # the network's own decision
    model = Model(network, num_classes=4, optimizer=partial(torch.optim.SGD, lr=0.1))
    _, kept = fit(tmp_path, [FreezeRule("network.0"), FreezeRule("network.1", 1), FreezeRule("network.4", 0)], model, 2)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    trained = {names[id(parameter)] for group in model.made.param_groups for parameter in group["params"]}
    assert trained == {"network.1.weight", "network.1.bias", "network.4.weight"}
    assert "network.4.bias" not in set().union(*kept.changed())
    assert not model.network[4].bias.requires_grad


class Filtered(Tiny):
    def configure_optimizers(self):
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)


@pytest.mark.parametrize(
    ("rules", "model", "message"),
    [
        (
            [FreezeRule("network.10", 1)],
            Tiny,
            "freeze.rules[0]: 'network.10' matches no parameter of Tiny; did you mean 'network.1'?",
        ),
        (
            [FreezeRule("network", 1)],
            Tiny,
            "freeze.rules: the first epoch trains nothing; set epochs: 0 for a part of the network",
        ),
        (
            BODY,
            Filtered,
            "freeze.rules: the optimizer does not have network.0 (2), network.1 (2), which would be trained later; let "
            "configure_optimizers pass frozen parameters too",
        ),
    ],
)
def test_what_is_refused(tmp_path, rules, model, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        fit(tmp_path, rules, model())


def test_settings_by_yaml(fit_images):
    rules = "{rules: [{params: network.5, epochs: 0}, {params: network, epochs: 1}]}"
    groups = "{rules: [{params: network.5, lr_scale: 2.0}], decay_norms_and_biases: false}"
    checked = fit_images(
        "fit", f"--freeze={rules}", f"--model.param_groups={groups}", "--check", "--model.optimizer.weight_decay=0.5"
    )
    assert checked.code == 0, checked.err
    table = [re.split(r"\s*│\s*", line.strip(" │")) for line in checked.out.splitlines() if "network." in line]
    assert table == [
        ["768", "network.0.weight", "0.1", "0.5"],
        ["32", "network.1 (2)", "0.1", "0"],
        ["160", "network.5.weight", "0.2", "0.5"],
        ["10", "network.5.bias", "0.2", "0"],
    ]
    assert "170 of them trained" in checked.out

    for settings, message in {
        "{rules: [{params: network.5, epochs: -1}]}": "freeze.rules.epochs: -1 is not valid; it must be at least 0",
        "{rules: [{parms: network.5}]}": "freeze.rules.parms: FreezeRule has no 'parms'; did you mean 'params'?",
        "{}": "freeze: the following arguments are required: rules",
    }.items():
        refused = fit_images("fit", f"--freeze={settings}")
        assert (refused.code, refused.err) == (2, f"error: {message}\n")


SCRIPT = textwrap.dedent("""
    import sys, torch
    from pathlib import Path
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
    one, other = (torch.load(tmp_path / f"rank_{rank}.pt", weights_only=True) for rank in (0, 1))
    torch.manual_seed(0)
    assert not torch.equal(one["network.0.weight"], Tiny().network[0].weight)
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
        assert math.isfinite(value.sum().item())
