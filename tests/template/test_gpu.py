"""Every shipped experiment on a GPU: `make test-gpu`."""

import pytest
import torch
from lightning.pytorch import Trainer

from tests.conftest import SHIPPED, experiment_of, settings_of
from tests.litlab.test_gpu import QUIET, NoWaiting

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a CUDA GPU: test_fake_cuda.py goes without one"
    ),
    *QUIET,
]


@pytest.mark.parametrize("config", SHIPPED, ids=experiment_of)
def test_experiment_trains_as_shipped_and_waits_for_nothing(run, short, monkeypatch, config):
    watch, fit = NoWaiting(), Trainer.fit
    monkeypatch.setattr(
        Trainer, "fit", lambda self, *a, **k: (self.callbacks.append(watch), fit(self, *a, **k))
    )
    flags = """
        --trainer.accelerator=gpu --trainer.devices=1 --trainer.enable_progress_bar=false
        --trainer.log_every_n_steps=1000 --data.batch_size=8
    """.split()
    done = run("fit --config", config, *short(config), *flags).check()
    assert "Precision: " in done.err or settings_of(config)["trainer"].get("precision") != "auto"
    assert watch.steps > 1
