"""Every shipped callback and every shipped DataModule: what one asks for, the other has, or says in a line that not."""

from importlib import import_module
from pkgutil import iter_modules

import pytest
from lightning.pytorch import Callback

from litlab import callbacks as machinery
from litlab.callbacks.reporting.data_facts import ClassNames, ImageFacts, SeriesFacts, TextFacts, facts
from litlab.callbacks.reporting.samples import from_test_step
from litlab.data import ImageData, SeriesData, TextData
from litlab.errors import UserError
from project import callbacks as plots
from tests.litlab.callbacks.tiny import make_trainer

MODULES = [import_module(module.name) for module in iter_modules(plots.__path__, "project.callbacks.")]
PLOTS = {
    name: thing
    for module in MODULES
    for name, thing in vars(module).items()
    if isinstance(thing, type) and issubclass(thing, Callback) and thing.__module__ == module.__name__
}
KNOWN = {*machinery.__all__, *PLOTS}
# What each callback that looks at the data asks of it: what it needs, and what it uses where it is there.
NEEDS = {"TextSamples": TextFacts, "ForecastPlots": SeriesFacts}
USES = {"ConfusionMatrix": [ClassNames], "ImagePlots": [ClassNames, ImageFacts], "TextSamples": [ClassNames]}
NO_DATA = {
    "Baselines", "Compile", "EMA", "ModelSummary", "NaNGuard", "ProgressBar", "RunSummary", "StepProfiler",
    "VRAM",
}  # fmt: skip
# The callbacks that are meant for each DataModule, and so must get all that they use.
MADE_FOR = {
    "ImageData": {"ConfusionMatrix", "ImagePlots"},
    "TextData": {"ConfusionMatrix", "TextSamples"},
    "SeriesData": {"ForecastPlots"},
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory, images, texts, series):
    """Each DataModule, ready for a test."""
    cache = str(tmp_path_factory.mktemp("cache"))
    made = [
        ImageData("folder", path=str(images), cache_dir=cache),
        TextData("csv", path=str(texts), cache_dir=cache),
        SeriesData("csv", path=str(series), targets=["load"], context_length=24, horizon=8),
    ]
    for data in made:
        data.prepare_data()
        data.setup("test")
    return {type(data).__name__: data for data in made}


def test_no_callback_is_forgotten():
    """Some of those named here may have been removed with their experiment."""
    assert {*machinery.__all__, "ImagePlots"} <= KNOWN <= NEEDS.keys() | USES.keys() | NO_DATA


@pytest.mark.parametrize("callback", sorted(KNOWN & (NEEDS.keys() | USES.keys())))
@pytest.mark.parametrize("data", MADE_FOR)
def test_every_callback_with_every_data_module(modules, callback, data, tmp_path):
    made = PLOTS.get(callback) or getattr(machinery, callback)
    trainer, shown = make_trainer(tmp_path), made()
    trainer.datamodule = modules[data]
    needed = NEEDS.get(callback)
    if callback in MADE_FOR[data]:
        assert needed is None or facts(shown, trainer, needed) is modules[data]
        assert all(isinstance(modules[data], used) for used in USES.get(callback, []))
    elif needed is not None:
        with pytest.raises(UserError, match=rf"{callback}: {data} has no '\w+'; .* take {callback} out"):
            facts(shown, trainer, needed)
    else:  # they ask the model first, and a model for such data does not answer
        with pytest.raises(UserError, match=rf"{callback}: .*test_step must return a dict with 'logits'"):
            from_test_step(shown, trainer, {"forecast": 0}, "logits", "(batch, classes)")


def test_facts_have_the_types_that_they_are_said_to_have(modules):
    for data in ("ImageData", "TextData"):
        assert all(isinstance(name, str) for name in modules[data].class_names)
    assert len(modules["ImageData"].mean) == len(modules["ImageData"].std) == modules["ImageData"].image_shape[0]
    assert 0 < modules["ImageData"].mean[0] < 1
    series = modules["SeriesData"]
    channels = len(series.target_names)
    assert series.mean.shape == series.scale.shape == series.naive_error.shape == (channels,)
