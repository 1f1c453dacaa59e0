"""Each callback that looks at the data, with every shipped DataModule: what it reads, and what it refuses."""

import sys

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.loggers import CSVLogger

from litlab.callbacks import Baselines, ConfusionMatrix, RunSummary
from litlab.data import ImageData, SeriesData, TextData
from litlab.errors import UserError
from project.callbacks.forecast_plots import ForecastPlots
from project.callbacks.image_plots import ImagePlots
from project.callbacks.text_samples import TextSamples
from tests.conftest import ROOT
from tests.litlab.callbacks.tiny import make_trainer

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
READERS = [Baselines, ConfusionMatrix, ForecastPlots, ImagePlots, RunSummary, TextSamples]


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
    logger = CSVLogger(folder, name="", version="")
    trainer = make_trainer(folder, logger=logger, callbacks=[*callbacks], max_steps=1, limit_val_batches=1)
    model = Answers(getattr(data, "num_classes", 0))
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)


@pytest.mark.parametrize("kind", READERS, ids=lambda cls: cls.__name__)
def test_each_with_every_data_module(kind, data, tmp_path):
    reads, file, made_for = READS[kind.__name__]
    is_for_it, seen = type(data).__name__ in made_for, watch(data)
    if not is_for_it:
        with pytest.raises(UserError, match=rf"^{kind.__name__}: .*; .*remove {kind.__name__} from trainer\.callbacks"):
            run(tmp_path, data, kind())
        return
    run(tmp_path, data, kind())
    assert seen == reads
    assert not file or (tmp_path / file).is_file()
