import numpy as np
import pytest
import torch
from PIL import Image

from litlab.data import ImageData
from litlab.errors import UserError
from project.callbacks import image_plots as module
from project.callbacks.image_plots import ImagePlots, denormalize, draw_images
from tests.litlab.callbacks.loggers import check_loggers
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A test, of which the arguments of `draw_images` are returned."""

    def test(plots, data, model):
        calls = []
        monkeypatch.setattr(module, "draw_images", lambda *given: calls.append(given))
        monkeypatch.setattr(module, "publish_figure", lambda *arguments: None)
        make_trainer(tmp_path, logger=False, callbacks=[plots]).test(model, data, verbose=False)
        return calls[0]

    return test


def test_samples_are_spread_and_true_to_their_batch(run):
    class Sorted(Tiny):
        """Says what the first pixel says."""

        def test_step(self, batch, batch_idx):
            return {"logits": 50 * torch.nn.functional.one_hot(batch[0][:, 0, 0, 0].long(), 4).float()}

    data, plots = TinyData(samples=40), ImagePlots(images=8)
    images, labels = data.dataset.tensors
    labels.copy_(torch.arange(40) // 10)  # sorted by class, as a folder of images is
    images[:, 0, 0, 0] = (labels + (torch.arange(40) % 2)).remainder(4).float()
    for _ in range(2):  # each test starts anew
        pixels, true, probabilities, _ = run(plots, data, Sorted())
        assert len(pixels) == 8
        assert set(true.tolist()) == {0, 1, 2, 3}
        for image, label, of_classes in zip(pixels, true, probabilities, strict=True):
            row = (denormalize(images) - image).abs().amax((1, 2, 3)).argmin()
            assert (labels[row], images[row, 0, 0, 0]) == (label, of_classes.argmax())


def test_wrong_ones_are_marked():
    figure = draw_images(torch.rand(9, 1, 4, 8), torch.arange(9) % 2, torch.tensor([[0.9, 0.1]] * 9), ["ant", "bee"])
    right, wrong = (axes.title for axes in figure.axes[:2])
    assert (right.get_text(), wrong.get_text()) == ("ant 90%", "ant 90%\nis bee")
    assert (right.get_color(), wrong.get_color()) == ("black", "red")
    assert [len(axes.images) for axes in figure.axes] == [1] * 9 + [0] * 7


def test_pixels_are_those_of_the_files(run, tmp_path, images):
    """From the files through the DataModule's normalisation to what is drawn."""

    class Guess(Tiny):
        def test_step(self, batch, batch_idx):
            return {"logits": torch.zeros(len(batch[0]), 10)}

    data = ImageData("folder", path=str(images), batch_size=10, cache_dir=str(tmp_path / "cache"))
    pixels, *_ = run(ImagePlots(images=5), data, Guess())
    files = [np.asarray(Image.open(path)) for path in images.glob("test/*/*.png")]
    assert len(pixels) == 5
    for image in pixels:
        shown = image.permute(1, 2, 0).numpy() * 255
        assert min(np.abs(shown - file).max() for file in files) < 0.01


def test_a_model_without_logits(run):
    class Silent(Tiny):
        def test_step(self, batch, batch_idx):
            return None

    with pytest.raises(UserError, match=r"Silent\.test_step must return a dict with 'logits'"):
        run(ImagePlots(), TinyData(), Silent())


def test_every_logger_gets_the_picture(tmp_path):
    check_loggers(tmp_path, ImagePlots(4), Tiny(), TinyData(), pictures={"test_images"})
