"""Every shipped callback in a fit and a test with every shipped DataModule: what it reads, and what it refuses."""

import sys
from importlib import import_module
from inspect import isclass

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.loggers import CSVLogger

from litlab import callbacks as machinery
from litlab.data import ImageData, SeriesData, TextData
from litlab.errors import UserError
from tests.conftest import ROOT
from tests.litlab.callbacks.tiny import make_trainer
from tests.template.shipped import CALLBACKS

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

FACTS = ("target_names", "times", "mean", "scale", "naive_error")  # of series
FOLDERS = tuple(str(ROOT / f"src/{package}/callbacks/") for package in ("litlab", "project"))
# What each callback that looks at the data reads of it, the file that it writes, and the data that it is meant for.
READS: dict[str, tuple[set[str], str, set[str]]] = {
    "ConfusionMatrix": ({"class_names"}, "confusion_matrix.png", {"ImageData", "TextData"}),
    "Baselines": ({"baselines"}, "baselines.json", {"ImageData", "TextData", "SeriesData"}),
    "RunSummary": ({"generated"}, "", {"ImageData", "TextData", "SeriesData"}),
    "ImagePlots": ({"class_names", "mean", "std"}, "test_images.png", {"ImageData"}),
    "TextSamples": ({"class_names", "text", "sample_index"}, "texts.csv", {"TextData"}),
    "ForecastPlots": (set(FACTS), "forecasts.png", {"SeriesData"}),
}
NEEDED = {"Freeze": {"rules": []}}  # arguments without a default
SHIPPED = [cls for name in machinery.__all__ if issubclass(cls := getattr(machinery, name), Callback)]
for module in (import_module(f"project.callbacks.{name}") for name in CALLBACKS):
    classes = [thing for thing in vars(module).values() if isclass(thing)]
    SHIPPED += [cls for cls in classes if issubclass(cls, Callback) and cls.__module__ == module.__name__]
# These ask for a network with blocks, an optimizer with a rate, a batch size or a loss: they have tests of their own.
APART = ("ActivationCheckpointing", "GradientNoiseScale", "LRFinder")
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


def watch(data):
    """Note what callbacks read of a DataModule."""
    seen = set()

    class Watched(type(data)):
        def __getattribute__(self, name):
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
    trainer = make_trainer(folder, logger=CSVLogger(folder, name="", version=""), callbacks=list(callbacks), **options)
    model = Answers(getattr(data, "num_classes", 0))
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)


@pytest.mark.parametrize("kind", SHIPPED, ids=lambda cls: cls.__name__)
def test_every_callback_with_every_data_module(kind, data, tmp_path):
    reads, file, made_for = READS.get(kind.__name__, (set(), "", set()))
    is_for_it, seen = type(data).__name__ in made_for, watch(data)
    callback = kind(**NEEDED.get(kind.__name__, {}))
    if kind.__name__ in READS and not is_for_it and kind is not machinery.Baselines:  # which leaves such data out
        with pytest.raises(UserError, match=rf"^{kind.__name__}: .*; .*remove {kind.__name__} from trainer\.callbacks"):
            run(tmp_path, data, callback)
    else:
        run(tmp_path, data, callback)
        assert seen == (reads if is_for_it else set())
        assert not file or (tmp_path / file).is_file() == is_for_it
