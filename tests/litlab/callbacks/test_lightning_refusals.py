"""What Lightning's callbacks and profilers need of a run, and what is said where it lacks that."""

import copy
from functools import partial

import lightning.pytorch.profilers as lightning_profilers
import pytest
import torch
from jsonargparse import Namespace
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BaseFinetuning,
    BasePredictionWriter,
    Callback,
    Checkpoint,
    ModelPruning,
    ProgressBar,
)
from torch import nn

from litlab.cli.callback_list import callback_list
from litlab.cli.trainer import check_profiler
from litlab.errors import UserError
from litlab.optim import Schedule, WarmupDecay
from litlab.optim.recipe import plain_recipe
from litlab.tasks import Classifier


def test_every_profiler_of_lightning_is_considered():
    """PyTorchProfiler is run with its overlay, PassThroughProfiler always, two in test_lightning_callbacks.py."""
    run = {"SimpleProfiler", "AdvancedProfiler", "PyTorchProfiler", "PassThroughProfiler"}
    assert set(lightning_profilers.__all__) == run | {"Profiler", "XLAProfiler"}  # a base; for TPUs


@pytest.mark.parametrize(
    ("profiler", "line"),
    [
        ("xla", "trainer.profiler: xla needs the package torch_xla; install it, or choose another profiler"),
        (Namespace(class_path="lightning.pytorch.profilers.XLAProfiler"), "trainer.profiler: xla needs the package"),
        ("lightning.pytorch.profilers.Profiler", "there is no profiler 'lightning.pytorch.profilers.Profiler'; choose"),
        ("fast", "trainer.profiler: there is no profiler 'fast'; choose simple, advanced, pytorch, xla, or the class"),
    ],
)
def test_profilers_that_cannot_work(profiler, line):
    with pytest.raises(UserError) as caught:
        check_profiler(profiler)
    assert line in str(caught.value)


def test_a_frozen_backbone_leaves_the_head():
    model = Classifier(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.Flatten(), nn.Linear(4, 2))), num_classes=2)
    assert [type(part) for part in model.backbone] == [nn.Conv2d, nn.Flatten]


class Sine(LightningModule):
    """Has no backbone."""


@pytest.mark.parametrize(
    ("own", "line"),
    [
        *(
            (cls.__new__(cls), f"trainer.callbacks: {cls.__name__} does nothing by itself; name a subclass")
            for cls in (Callback, Checkpoint, BaseFinetuning, BasePredictionWriter, ProgressBar)
        ),
        (BackboneFinetuning(), "BackboneFinetuning freezes model.backbone, which Sine does not have; give it"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_callbacks_that_cannot_work(own, line):
    config = {
        "callbacks": own,
        "barebones": False,
        "fast_dev_run": False,
        "enable_model_summary": False,
        "enable_progress_bar": True,
    }
    with pytest.raises(UserError) as caught:
        callback_list([], config, Sine(), logged=True, resumes=False, test_follows=bool)
    assert line in str(caught.value)


def test_a_schedule_that_cannot_take_further_parameters():
    model = Classifier(nn.Linear(4, 2), num_classes=2, schedule=Schedule(WarmupDecay))
    config = {
        "callbacks": [BackboneFinetuning()],
        "barebones": False,
        "fast_dev_run": False,
        "enable_model_summary": False,
    }
    with pytest.raises(UserError, match=r"to the optimizer, which WarmupDecay can't take; set another model\.schedule"):
        callback_list([], config, model, logged=True, resumes=False, test_follows=bool)


def test_pruning_is_not_resumed_but_begun():
    config = {
        "callbacks": ModelPruning("l1_unstructured"),
        "barebones": True,
        "fast_dev_run": False,
        "enable_model_summary": None,
    }
    assert callback_list([], config, Sine(), logged=False, resumes=False, test_follows=bool)[-1] is config["callbacks"]


def test_a_learning_rate_that_is_no_setting_can_not_be_found():
    model = Classifier(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2)), num_classes=2)
    model.optimizer = lambda parameters: torch.optim.SGD(
        [{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:], "lr": 0.2}]
    )
    assert model.lr is None
    with pytest.raises(UserError, match=r"^model\.optimizer: .* has no setting lr; "):
        model.lr = 0.03
    assert [group["lr"] for group in model.configure_optimizers().param_groups] == [0.1, 0.2]


class Parser:
    """Calls classes, as the command line's does, and can't be copied."""

    def __call__(self, cls, *arguments, **keywords):
        return cls(*arguments, **keywords)

    def __deepcopy__(self, memo):
        raise TypeError("a parser can't be copied")


def test_recipes_of_the_command_line_can_be_copied():
    optimizer = copy.deepcopy(plain_recipe(partial(Parser(), torch.optim.SGD, lr=0.3)))
    schedule = copy.deepcopy(plain_recipe(Schedule(partial(Parser(), WarmupDecay, warmup=0.5), interval="step")))
    built = optimizer([torch.zeros(1)])
    assert built.param_groups[0]["lr"] == 0.3
    configured = schedule.configure(built, 10, 1)
    assert isinstance(configured["scheduler"], WarmupDecay)
    assert configured["interval"] == "step"
    own = partial(sorted, reverse=True)  # not of the command line
    assert plain_recipe(own)([1, 2]) == [2, 1]
