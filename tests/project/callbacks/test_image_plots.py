import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from PIL import Image

from litlab.data import ImageData
from litlab.errors import UserError
from project.callbacks import image_plots as module
from project.callbacks.image_plots import ImagePlots, denormalised, draw_images, within_0_and_1
from tests.litlab.callbacks.loggers import check_loggers
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


def run(tmp_path, plots, logger, data=None, model=None):
    trainer = make_trainer(tmp_path, logger=logger, callbacks=[plots])
    trainer.test(model or Tiny(), data or TinyData(samples=30), verbose=False)


def test_starts_anew_with_each_test(tmp_path):
    plots = ImagePlots()
    run(tmp_path, plots, False)
    first = plots._samples
    run(tmp_path, plots, False)
    assert len(plots._samples) == len(first) == 30


def test_samples_are_spread_and_true_to_their_batch(tmp_path):
    class Sorted(Tiny):
        """Says what the first pixel says."""

        def test_step(self, batch, batch_idx):
            return {"logits": torch.nn.functional.one_hot(batch[0][:, 0, 0, 0].long(), 4).float()}

    data = TinyData(samples=40)
    images, labels = data.dataset.tensors
    labels.copy_(torch.arange(40) // 10)  # sorted by class, as a folder of images is
    images[:, 0, 0, 0] = (labels + (torch.arange(40) % 2)).remainder(4).float()
    plots = ImagePlots(images=8)
    run(tmp_path, plots, False, data, Sorted())
    assert len(plots._samples) == 8
    assert {int(label) for _, label, _, _ in plots._samples} == {0, 1, 2, 3}
    for image, _, predicted, probability in plots._samples:
        assert predicted == int(image[0, 0, 0])
        assert probability == pytest.approx(torch.e / (torch.e + 3), abs=1e-4)


@pytest.mark.parametrize("with_csv", [False, True])
def test_other_loggers(tmp_path, with_csv):
    run(tmp_path, ImagePlots(2), CSVLogger(tmp_path) if with_csv else False)
    assert {path.name for path in tmp_path.rglob("*.png")} == ({"test_images.png"} if with_csv else set())


def test_no_logits_is_a_user_error(tmp_path):
    class NoLogits(Tiny):
        def test_step(self, batch, batch_idx):
            return super().test_step(batch, batch_idx)["loss"]

    with pytest.raises(UserError, match=r"NoLogits\.test_step must return a dict with 'logits'"):
        run(tmp_path, ImagePlots(), False, model=NoLogits())


def test_wrong_ones_are_marked():
    image = torch.rand(1, 4, 4)
    (axes,) = draw_images([(image, 0, 0, 0.9), (image, 1, 0, 0.6)], ["ant", "bee"]).axes
    right, wrong = axes.texts
    assert right.get_text() == "ant 90%"
    assert wrong.get_text() == "ant 60%\nis bee"
    assert wrong.get_color() != right.get_color()
    assert axes.patches[1].get_linewidth() > axes.patches[0].get_linewidth()


def test_every_image_has_a_place_of_its_own():
    """Also where the last row isn't full, and the images are wider than high."""
    figure = draw_images([(torch.rand(3, 4, 8), 0, 0, 1.0)] * 10, ["ant"])
    (axes,) = figure.axes
    places = [image.get_extent() for image in axes.images]
    assert len({(left, top) for left, _, _, top in places}) == 10
    for (left, right, bottom, top), text in zip(places, axes.texts, strict=True):
        assert (right - left) / (bottom - top) == pytest.approx(2)
        assert left < text.get_position()[0] < right
        assert text.get_position()[1] < top
        assert axes.get_xlim()[0] <= left < right <= axes.get_xlim()[1]
        assert 0 <= top < bottom <= axes.get_ylim()[0]


def test_pixels_are_those_of_the_files(tmp_path, images, monkeypatch):
    """From the files through the DataModule's normalisation to what matplotlib draws."""

    class Guess(Tiny):
        def test_step(self, batch, batch_idx):
            return {"logits": torch.zeros(len(batch[0]), 10)}

    figures = []
    monkeypatch.setattr(module, "publish_figure", lambda trainer, folder, name, figure: figures.append(figure))
    data = ImageData("folder", path=str(images), batch_size=10, cache_dir=str(tmp_path / "cache"))
    run(tmp_path, ImagePlots(images=5), False, data, Guess())
    files = [np.asarray(Image.open(path)) for path in images.glob("test/*/*.png")]
    (axes,) = figures[0].axes
    assert len(axes.images) == 5
    for image in axes.images:
        shown = image.get_array() * 255
        assert min(np.abs(shown - pixels).max() for pixels in files) < 0.01


def test_pixels_of_data_that_tells_no_normalisation():
    small, dark = torch.rand(3, 4, 4), torch.rand(3, 4, 4) / 10
    assert all(map(torch.equal, within_0_and_1([small, dark]), [small, dark]))  # shown as they are
    low, high = within_0_and_1([dark - 1, small + 1])
    torch.testing.assert_close(high - low, (small + 1 - (dark - 1)) / (small.max() + 1 - (dark.min() - 1)))  # alike


def test_pixels_are_brought_back():
    image = torch.rand(3, 4, 4)
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]
    normalised = (image - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(denormalised(normalised, mean, std), image)


def test_every_logger_gets_the_picture(tmp_path):
    check_loggers(tmp_path, ImagePlots(4), Tiny(), TinyData(), pictures={"test_images"})
