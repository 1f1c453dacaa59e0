import numpy as np
import pytest
import torch
from PIL import Image

from litlab.data import ImageData
from litlab.callbacks import image_plots as module
from litlab.callbacks.image_plots import ImagePlots
from tests.litlab.callbacks.tiny import Tiny, make_trainer


class Brightness(Tiny):
    """Says class 0 for pictures that are dark at the corner, class 1 for others."""

    def test_step(self, batch, batch_idx):
        bright = batch[0][:, 0, 0, 0] > 0
        sure = 2 + batch[0].mean((1, 2, 3)).sigmoid()[:, None]
        return {"logits": sure * torch.nn.functional.one_hot(bright.long(), 10).float()}


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_samples_are_spread_and_pixels_those_of_the_files(tmp_path, images, monkeypatch):
    """From the files, sorted by class, through the DataModule's normalisation to what is drawn."""
    calls = []
    monkeypatch.setattr(module, "draw_images", lambda *given: calls.append(given))
    monkeypatch.setattr(module, "publish_figure", lambda *arguments: None)
    data = ImageData("folder", path=str(images), batch_size=10, cache_dir=str(tmp_path / "cache"))
    trainer = make_trainer(tmp_path, callbacks=[ImagePlots(images=10)])
    for _ in range(2):  # each test starts anew
        trainer.test(Brightness(), data, verbose=False)
    files = {path: np.asarray(Image.open(path)) for path in images.glob("test/*/*.png")}
    assert len(calls) == 4
    for number, (pixels, true, probabilities, names) in enumerate(calls):
        if number % 2 == 0:
            assert sorted(true.tolist()) == list(range(10))
        else:  # the most confident mistakes
            confidence, predicted = probabilities.max(1)
            assert len(pixels) == 10
            assert (predicted != true).all()
            assert confidence.equal(confidence.sort(descending=True).values)
        for image, label, of_classes in zip(pixels, true, probabilities, strict=True):
            shown = image.permute(1, 2, 0).numpy() * 255
            file = min(files, key=lambda path: np.abs(shown - files[path]).max())
            assert np.abs(shown - files[file]).max() < 0.01
            assert file.parent.name == names[label]
            assert of_classes.argmax() == (image[0, 0, 0] > data.mean[0])
