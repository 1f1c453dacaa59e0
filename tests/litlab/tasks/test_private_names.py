"""Private names of libraries that callbacks, metrics and tasks use: what they are in the installed versions.

Those of torch are pinned beside what uses them, in tests/litlab/parallel/test_tensors.py and tests/litlab/callbacks.
"""

import pytest
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torchmetrics import SumMetric

from litlab.optim import Schedule, WarmupDecay
from litlab.tasks import Classifier
from tests.litlab.callbacks.tiny import TinyData, make_trainer


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_where_lightning_keeps_the_training_loader(tmp_path):
    """`ExperimentModule.configure_optimizers` clears it in a resumed run."""
    trainer = make_trainer(tmp_path, limit_val_batches=0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    trainer.fit(Classifier(network, num_classes=4, schedule=Schedule(WarmupDecay, "step")), TinyData())
    assert isinstance(trainer.fit_loop._combined_loader, CombinedLoader)
    trainer.fit_loop._combined_loader = None
    trainer.fit_loop.setup_data()
    assert isinstance(trainer.fit_loop._combined_loader, CombinedLoader)


def test_where_lightning_keeps_an_average_of_the_weights(tmp_path):
    average = WeightAveraging()
    assert average._average_model is None
    average.setup(make_trainer(tmp_path), Classifier(nn.Linear(4, 3), num_classes=3), "fit")
    assert isinstance(average._average_model, AveragedModel)


def test_where_torchmetrics_counts_updates():
    """`load_metric_states` sets the number."""
    metric = SumMetric()
    assert metric.update_count == metric._update_count == 0
    metric._update_count += 1
    assert metric.update_called


def test_what_module_compile_sets():
    """`Compile` sets the same before torch 2.15, where `nn.Module.compile` skips torch's own modules."""
    module = nn.Sequential(nn.Linear(2, 2))
    assert module._compiled_call_impl is None
    module.compile(backend="eager")
    assert callable(module._compiled_call_impl)
    assert callable(module._call_impl)
