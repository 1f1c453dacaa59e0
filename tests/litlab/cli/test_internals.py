"""Private parts of Lightning and jsonargparse that the command line uses: a new version that renames one fails here."""

import inspect

import pytest
import torch
from jsonargparse import ArgumentParser, set_parsing_settings
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.cli import LightningCLI

from litlab.cli.hints import ImportDenied, import_object, parameters, types_of
from litlab.cli.lightning_internals import accelerator_name, log_at_step, release_averages


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("_parse_ckpt_path", []),
        ("_prepare_subcommand_parser", ["klass", "subcommand", "kwargs"]),
        ("_prepare_subcommand_kwargs", ["subcommand"]),
        ("_run_subcommand", ["subcommand"]),
    ],
)
def test_lightning_calls_the_methods_that_are_overridden(method, arguments):
    assert list(inspect.signature(getattr(LightningCLI, method)).parameters) == ["self", *arguments]
    assert f"self.{method}(" in inspect.getsource(LightningCLI)


def test_lightning_dumps_the_config_once():
    """Deleting ``config_dump`` makes it look at the config again, once the model's settings are complete."""
    assert 'if hasattr(self, "config_dump"):\n            return' in inspect.getsource(LightningCLI._dump_config)


def test_averages_are_released_and_results_get_a_step():
    callback = WeightAveraging()
    trainer = Trainer(logger=False, enable_checkpointing=False, callbacks=[callback])
    assert "_average_model" in vars(callback)
    callback._average_model = object()  # pyright: ignore[reportAttributeAccessIssue]
    release_averages(trainer)
    assert callback._average_model is None
    log_at_step(trainer, 7)
    assert trainer.fit_loop.epoch_loop._batches_that_stepped == 7


def test_the_accelerator_is_that_of_the_trainer():
    quiet = {"logger": False, "enable_checkpointing": False}
    for wanted in ("auto", "cpu", CPUAccelerator()):
        assert accelerator_name(wanted) == Trainer(accelerator=wanted, **quiet).accelerator.name()
    assert accelerator_name("gpu") == ("mps" if torch.backends.mps.is_available() else "cuda")


def test_parsers_know_the_types_of_their_settings():
    def make(count: int, names: list[str] | None = None) -> None: ...

    assert parameters(make) == ({"count": int, "names": list[str] | None}, {"count"})
    parser = ArgumentParser()
    parser.add_argument("--switch", action="store_true")
    parser.add_argument("--group.number", type=float)
    assert types_of(parser) == {"switch": bool, "group.number": float}


def test_imports_follow_the_rules_of_the_parser():
    set_parsing_settings(import_path_denylist=["fractions"])
    assert import_object("decimal.Decimal").__name__ == "Decimal"
    with pytest.raises(ImportDenied, match=r"'fractions.Fraction' .* 'fractions'"):
        import_object("fractions.Fraction")
