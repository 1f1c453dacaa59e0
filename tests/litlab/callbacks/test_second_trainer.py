"""A second Trainer beside that of the run: its precision."""

from lightning.pytorch import Trainer
from lightning.pytorch.plugins import FSDPPrecision, MixedPrecision
from lightning.pytorch.strategies import FSDPStrategy, SingleDeviceStrategy

from litlab.callbacks.second_trainer import second_trainer


class Plugin(MixedPrecision):
    """A precision of the user's own."""


def test_a_plugin_of_the_users_own_is_copied(tmp_path):
    run = Trainer(default_root_dir=tmp_path, accelerator="cpu", logger=False, plugins=[Plugin("bf16-mixed", "cpu")])
    second = second_trainer(run, [])
    assert type(second.precision_plugin) is Plugin
    assert second.precision_plugin is not run.precision_plugin


def test_that_of_a_strategy_that_shards_is_not(tmp_path, monkeypatch):
    """It works in all processes of the run at once, or not at all."""
    run = Trainer(default_root_dir=tmp_path, accelerator="cpu", logger=False, plugins=[Plugin("bf16-mixed", "cpu")])
    run._accelerator_connector.strategy = FSDPStrategy(
        accelerator=run.accelerator,
        parallel_devices=[run.strategy.root_device],
        precision_plugin=FSDPPrecision("bf16-mixed"),
    )
    second = second_trainer(run, [])
    assert isinstance(second.strategy, SingleDeviceStrategy)
    assert second.precision == run.precision
    assert type(second.precision_plugin) is MixedPrecision
