"""Every shipped callback in a fit and a test with every shipped DataModule: it asks for what a protocol states only."""

import sys
from importlib import import_module
from inspect import getmembers, isclass
from pkgutil import iter_modules
from typing import get_type_hints

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.loggers import CSVLogger

from litlab import callbacks as machinery
from litlab.callbacks.reporting import (
    ClassNames,
    Described,
    HasBaselines,
    HasBatchLoss,
    HasCoverage,
    ImageFacts,
    Labelled,
    MaybeGenerated,
    SeriesFacts,
    TextFacts,
    protocols,
)
from litlab.data import ImageData, SeriesData, TextData
from litlab.errors import UserError
from project import callbacks as plots
from tests.conftest import ROOT
from tests.litlab.callbacks.tiny import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

PROTOCOLS = [cls for _, cls in getmembers(protocols, isclass) if cls.__doc__ and cls.__module__ == protocols.__name__]
OF_A_MODEL = [HasCoverage, HasBatchLoss]
FOLDERS = tuple(str(ROOT / f"src/{package}/callbacks/") for package in ("litlab", "project"))
# What each callback that looks at the data gets from the DataModules that it is meant for, and the file that it writes.
GETS: dict[str, tuple[list[type], str, set[str]]] = {
    "ConfusionMatrix": ([ClassNames, Labelled], "confusion_matrix.png", {"ImageData", "TextData"}),
    "Baselines": ([HasBaselines], "baselines.json", {"ImageData", "TextData", "SeriesData"}),
    "RunSummary": ([MaybeGenerated], "", {"ImageData", "TextData", "SeriesData"}),
    "ImagePlots": ([ClassNames, ImageFacts], "test_images.png", {"ImageData"}),
    "TextSamples": ([ClassNames, TextFacts], "test_texts.csv", {"TextData"}),
    "ForecastPlots": ([SeriesFacts], "forecasts.png", {"SeriesData"}),
    "SinusoidPlots": ([], "sinusoids.png", set()),
}
NEEDED = {"Freeze": {"rules": []}}  # arguments without a default
SHIPPED = [cls for name in machinery.__all__ if issubclass(cls := getattr(machinery, name), Callback)]
for module in iter_modules(plots.__path__, "project.callbacks."):
    found = [thing for thing in vars(import_module(module.name)).values() if isclass(thing)]
    SHIPPED += [cls for cls in found if issubclass(cls, Callback) and cls.__module__ == module.name]
# These ask for a network with blocks, an optimizer with a rate, a batch size or a loss: they have tests of their own.
APART = ("ActivationCheckpointing", "BatchFinder", "GradientNoiseScale", "LRFinder")
SHIPPED = [cls for cls in SHIPPED if cls.__name__ not in APART]


class Answers(LightningModule):
    """Guesses the first class, or the last row, of whatever it is given."""

    coverage = 0.9

    def __init__(self, classes):
        super().__init__()
        self.network = torch.nn.Linear(1, 1)
        self.classes = classes

    def training_step(self, batch, batch_idx):
        return self.network(torch.ones(1)).sum()

    def validation_step(self, batch, batch_idx):
        pass

    def test_step(self, batch, batch_idx):
        if isinstance(batch, dict):
            forecast = batch["past"][:, -1:].expand_as(batch["future"])
            return {"forecast": forecast, "lower": forecast - 1, "upper": forecast + 1}
        return {"logits": torch.eye(self.classes)[[0] * len(batch[1])]}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def watch(data, hidden=()):
    """Note what callbacks read of a DataModule, and hide some of it from all."""
    seen = set()

    class Watched(type(data)):
        def __getattribute__(self, name):
            if name in hidden:
                raise AttributeError(name)
            if sys._getframe(1).f_code.co_filename.startswith(FOLDERS):
                seen.add(name)
            return super().__getattribute__(name)

    Watched.__name__ = type(data).__name__
    data.__class__ = Watched
    return seen


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(params=[ImageData, TextData, SeriesData], ids=lambda cls: cls.__name__)
def data(request, cache):
    """Each DataModule."""
    path = {name: str(request.getfixturevalue(name)) for name in ("images", "texts", "series")}
    if request.param is ImageData:
        return ImageData("folder", path=path["images"], cache_dir=cache)
    if request.param is TextData:
        return TextData("csv", path=path["texts"], cache_dir=cache)
    return SeriesData("csv", path=path["series"], targets=["load"], context_length=24, horizon=8)


def run(folder, data, *callbacks):
    """A fit of one step, and a test; return the model."""
    options = {"max_steps": 1, "limit_val_batches": 1}
    options["enable_progress_bar"] = any(isinstance(callback, machinery.ProgressBar) for callback in callbacks)
    options["enable_model_summary"] = any(isinstance(callback, machinery.ModelSummary) for callback in callbacks)
    trainer = make_trainer(folder, logger=CSVLogger(folder, name="", version=""), callbacks=list(callbacks), **options)
    model = Answers(getattr(data, "num_classes", 0))
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)


def names(*asked):
    return {name for protocol in asked for name in get_type_hints(protocol)}


@pytest.mark.parametrize("kind", SHIPPED, ids=lambda cls: cls.__name__)
def test_every_callback_with_every_data_module(kind, data, tmp_path):
    gets, file, made_for = GETS.get(kind.__name__, ([], "", set()))
    is_for_it, seen = type(data).__name__ in made_for, watch(data)
    callback = kind(**NEEDED.get(kind.__name__, {}))
    if kind.__name__ in GETS and not is_for_it and kind is not machinery.Baselines:  # which leaves such data out
        with pytest.raises(UserError, match=rf"^{kind.__name__}: .*; .*remove {kind.__name__} from trainer\.callbacks"):
            run(tmp_path, data, callback)
    else:
        run(tmp_path, data, callback)
        assert seen == (names(*gets) if is_for_it else set())
        assert not file or (tmp_path / file).is_file() == is_for_it
    assert seen <= names(*PROTOCOLS)


@pytest.mark.parametrize("data", [TextData, SeriesData], indirect=True, ids=lambda cls: cls.__name__)
def test_a_fact_that_is_missing_is_named(data, tmp_path):
    needs = {"TextData": ("TextSamples", TextFacts), "SeriesData": ("ForecastPlots", SeriesFacts)}
    name, needed = needs[type(data).__name__]
    kind = next((cls for cls in SHIPPED if cls.__name__ == name), None)
    for name in names(needed) if kind else ():  # it may have been removed with its experiment
        watch(data, hidden={name})
        with pytest.raises(UserError, match=rf"{kind.__name__}: {type(data).__name__} has no '{name}'; add it"):
            run(tmp_path, data, kind())
        data.__class__ = type(data).__base__


def test_protocols_are_checked_at_runtime_and_documented():
    documented = (ROOT / "docs/callbacks.md").read_text()
    of_data = {ClassNames, Described, HasBaselines, ImageFacts, Labelled, MaybeGenerated, SeriesFacts, TextFacts}
    assert of_data == set(PROTOCOLS) - set(OF_A_MODEL)
    for protocol in PROTOCOLS:
        assert not isinstance(object(), protocol)
        assert protocol.__doc__
        for name in names(protocol):
            assert f"`{name}" in documented, name


def test_facts_have_the_types_that_they_are_said_to_have(data):
    data.prepare_data()
    data.setup("test")
    if isinstance(data, SeriesData):
        channels = len(data.target_names)
        assert data.mean.shape == data.scale.shape == data.naive_error.shape == (channels,)
        return
    assert all(isinstance(name, str) for name in data.class_names)
    if isinstance(data, ImageData):
        assert len(data.mean) == len(data.std) == data.image_shape[0]
        assert 0 < data.mean[0] < 1
