import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from litlab.callbacks import ImagePlots
from litlab.data import ImageData
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, evaluate


def tell_brightness(batch):
    """Says class 0 for pictures that are dark at the corner, class 1 for others."""
    images = batch[0]
    bright = images[:, 0, 0, 0] > 0
    sure = 2 + images.mean((1, 2, 3)).sigmoid()[:, None]
    return {"logits": sure * torch.nn.functional.one_hot(bright.long(), 10).float()}


def test_samples_are_spread_and_pixels_those_of_the_files(tmp_path, images, monkeypatch, figures):
    """From the files, sorted by class, through the DataModule's normalisation to what is drawn."""
    calls = []
    monkeypatch.setattr(
        "litlab.callbacks.image_plots.draw_images", lambda *given: calls.append(given)
    )
    data = ImageData("folder", path=str(images), batch_size=10, cache_dir=str(tmp_path / "cache"))
    evaluate(tmp_path / "run", tell_brightness, data, ImagePlots(images=10))
    files = {path: np.asarray(Image.open(path)) for path in images.glob("test/*/*.png")}
    assert len(calls) == 4
    for number, (pixels, rows, outputs) in enumerate(calls):
        wrong, confidence, true, predicted = rows.T
        if number % 2 == 0:
            assert sorted(true.tolist()) == list(range(10))
        else:  # the most confident mistakes
            assert len(pixels) == wrong.sum() == (predicted != true).sum() == 10
            assert confidence.equal(confidence.sort(descending=True).values)
        for image, label, said in zip(pixels, true.long(), predicted, strict=True):
            shown = image.permute(1, 2, 0).numpy() * 255
            file = min(files, key=lambda path: np.abs(shown - files[path]).max())
            assert np.abs(shown - files[file]).max() < 0.01
            assert file.parent.name == outputs.names[label]
            assert said == (image[0, 0, 0] > data.mean[0])


TITLES = {
    "logits": [["red, round 27%\nis red", "red, round 27%"], ["red, round 27%\nis red"]],
    "predicted": [["1", "1\nis 2"], ["1\nis 2"]],  # one number
}


@pytest.mark.parametrize("key", TITLES)
def test_labels_and_numbers_are_written_above_the_images(tmp_path, monkeypatch, figures, key):
    has_labels, data = key == "logits", TinyData()
    target = torch.tensor([[1.0, 0], [1, 1]] if has_labels else [1.0, 2])
    data.dataset = TensorDataset(torch.rand(2, 3, 8, 8), target)
    data.label_names = ["red", "round"]
    predicted = torch.tensor([[1.0, -1.0]] * 2)[:, : target[0].numel()]
    monkeypatch.setattr(Tiny, "thresholds", (0.5, 0.2), raising=False)
    evaluate(tmp_path, lambda batch: {key: predicted}, data, ImagePlots())
    titles = [[axes.get_title() for axes in figure.axes] for figure in figures.values()]
    assert titles == TITLES[key]


@pytest.mark.parametrize(
    ("images", "target", "key", "problem"),
    [
        ((2, 8, 8), (), "logits", "no images"),
        ((3, 8, 8), (4, 8), "logits", "is predicted for"),
        ((3, 8, 8), (), "mask", "must return a dict with 'logits' or 'predicted'"),
        ((3, 8, 8), None, "logits", "must be \\(inputs, target\\)"),
    ],
)
def test_what_can_not_be_shown_is_refused_in_a_line(tmp_path, images, target, key, problem):
    targets = [] if target is None else [torch.ones(5, *target, dtype=torch.long)]
    loader = DataLoader(TensorDataset(torch.rand(5, *images), *targets), batch_size=5)
    with pytest.raises(UserError, match=rf"^ImagePlots: .*{problem}.*; .*trainer\.callbacks$"):
        evaluate(tmp_path, lambda batch: {key: torch.zeros(5, 4)}, loader, ImagePlots(2))
