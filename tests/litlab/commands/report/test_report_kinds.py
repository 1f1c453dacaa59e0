"""What a report makes of predictions, of whatever model, and its drawings."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from litlab.commands.report.classification import Classification
from litlab.commands.report.curves import Curves, charts
from litlab.commands.report.drawings import (
    Line,
    draw_histogram,
    draw_lines,
    draw_matrix,
    draw_scatter,
    draw_steps,
    draw_window,
)
from litlab.commands.report.forecasting import Forecasting
from litlab.commands.report.regression import Regression
from litlab.commands.report.samples import EvaluationContext, SampleRenderer
from litlab.commands.report.shipped import Shipped
from litlab.commands.report.svg import ticks
from torchmetrics.functional.classification import multiclass_calibration_error

from litlab.commands.report import facts
from litlab.commands.report.blocks import Block, Figure, Paragraph, Table
from litlab.commands.report.evaluate import KINDS
from litlab.commands.report.facts import class_line

LABELS, IMAGES = torch.tensor([0, 2, 1]), torch.rand(3, 3, 8, 8)


def watched(batches: int) -> EvaluationContext:
    model = LightningModule()
    return EvaluationContext(Trainer(barebones=True, accelerator="cpu"), model, SampleRenderer(None), batches)


@pytest.mark.parametrize(
    ("outputs", "batch", "kind"),
    [
        ({"logits": torch.rand(3, 4)}, (IMAGES, LABELS), Classification),
        ({"logits": torch.rand(3, 4, 8, 8)}, (IMAGES, torch.zeros(3, 8, 8).long()), None),  # segmentation
        ({"logits": torch.rand(3, 4)}, (IMAGES, torch.rand(3, 4)), None),  # several labels
        ({"logits": torch.rand(3, 4)}, {"image": IMAGES}, None),
        ({"loss": torch.tensor(1.0)}, (IMAGES, LABELS), None),
        ({"predicted": torch.rand(3, 2)}, (IMAGES, torch.rand(3, 2)), Regression),
        ({"predicted": torch.rand(3, 1)}, (IMAGES, torch.rand(3)), Regression),
        ({"predicted": torch.rand(3, 2)}, (IMAGES, torch.rand(3)), None),
        ({"forecast": torch.rand(3, 5, 2)}, {"past": torch.rand(3, 9, 2), "future": torch.rand(3, 5, 2)}, Forecasting),
        ({"forecast": torch.rand(3, 5, 2)}, {"past": torch.rand(3, 9, 2)}, None),
        ({"forecast": [1.0]}, torch.rand(3), None),
    ],
)
def test_a_model_of_ones_own_is_known_by_what_it_returns(outputs, batch, kind):
    assert next((one for one in KINDS if one.fits(outputs, batch)), None) is kind


def test_the_calibration_error_is_that_of_torchmetrics():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(400, 5, generator=generator)
    labels = torch.randint(5, (400,), generator=generator)
    kind = Classification(watched(2))
    for part in (slice(0, 150), slice(150, 400)):
        kind.add({"logits": logits[part]}, (torch.zeros(len(labels[part]), 2), labels[part]), 0)
    words = kind.sections()[1].blocks[0]
    assert isinstance(words, Paragraph)
    found = re.search(r"error: (\d\.\d+)", words.text)
    assert found
    assert float(found[1]) == pytest.approx(float(multiclass_calibration_error(logits, labels, 5, 15)), abs=6e-4)
    assert "overconfident" in words.text


def test_the_mistakes_are_the_most_confident_ones():
    kind = Classification(watched(5))
    strengths = torch.arange(1, 51) / 10  # more and more confident, and always wrong
    for number in range(5):
        logits = torch.zeros(10, 3)
        logits[:, 1] = strengths[10 * number : 10 * number + 10]
        kind.add({"logits": logits}, (torch.rand(10, 1, 4, 4), torch.zeros(10).long()), number)
    samples = kind.sections()[2].blocks[0].samples  # pyright: ignore[reportAttributeAccessIssue]
    shown = [int(found) for sample in samples for found in re.findall(r"(\d+)%", sample.caption)]
    wanted = [math.exp(s) / (math.exp(s) + 2) for s in strengths.tolist()[:-17:-1]]
    assert shown == [int(f"{share:.0%}"[:-1]) for share in wanted]
    assert {sample.caption.split()[0] for sample in samples} == {"1"}
    assert len(kind.samples()[0].samples) == 16  # pyright: ignore[reportAttributeAccessIssue]


def test_predictions_that_are_not_numbers_are_counted():
    kind = Classification(watched(2))
    kind.add({"logits": torch.full((3, 4), torch.nan)}, (torch.zeros(3, 2), LABELS), 0)
    assert kind.sections()[1].blocks == [Paragraph("3 of 3 predictions are not numbers.")]
    numbers = Regression(watched(2))
    numbers.add({"predicted": torch.full((3, 1), torch.nan)}, (torch.zeros(3, 2), torch.rand(3)), 0)
    assert numbers.sections()[0].blocks == [Paragraph("3 predictions or true values are not numbers.")]
    forecasts = Forecasting(watched(2))
    batch = {"past": torch.rand(3, 9, 2), "future": torch.rand(3, 5, 2)}
    forecasts.add({"forecast": torch.full((3, 5, 2), torch.nan)}, batch, 0)
    assert [section.name for section in forecasts.sections()] == ["errors"]
    one_column = Forecasting(watched(2))
    one_column.add({"forecast": torch.tensor([1.0, torch.nan]).expand(3, 5, 2)}, batch, 0)
    [errors] = one_column.sections()
    assert isinstance(table := errors.blocks[1], Table)
    assert [row[1] == "nan" for row in table.rows] == [False, True]


def drawings() -> list[str]:
    one, many = np.array([3.0]), np.random.default_rng(0).normal(size=700)
    nothing = np.full((2, 1), np.nan)
    return [
        draw_lines([Line("<a & 'b'>", [(1, 2.0)], "c0")], "epoch", "<&\"'>"),
        draw_lines([Line("", [(1, math.nan), (2, math.inf), (3, 5.0)], "c0")], "step", "gaps"),
        draw_lines([Line("a", [(n, 10.0**-n) for n in range(9)], "c0"), Line("b", [(0, 0.5)], "c1")], "", "log"),
        draw_lines([Line("", [(n, 0.0) for n in range(5000)], "c0")], "step", "flat"),
        draw_matrix(np.array([[5, 0], [1, 9]]), ["<a>", "b" * 90]),
        draw_matrix(np.eye(30, dtype=int), [str(number) for number in range(30)]),
        draw_window(one, one, one, nothing, "one step"),
        draw_window(many[:9], many[:5], np.full(5, np.nan), np.stack([many[:5] - 1, many[:5] + 1]), "no forecast"),
        draw_scatter(one, one, "one"),
        draw_histogram(many, "error", "many"),
        draw_histogram(np.zeros(3), "error", "all the same"),
        draw_steps({"a": many[:1]}, "one step"),
    ]


def test_drawings_are_well_formed_and_stay_inside():
    for svg in drawings():
        root = ElementTree.fromstring(svg)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
        for path in root.iter("{http://www.w3.org/2000/svg}path"):
            assert not re.search("nan|inf", path.attrib["d"])
            for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attrib["d"]):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height
        assert len(svg) < 40_000


def test_the_points_of_a_line_are_where_they_belong():
    svg = draw_lines([Line("", [(1, 10.0), (2, 30.0), (3, 20.0)], "c0")], "epoch", "three points")
    dots = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)]
    assert dots[1][0] - dots[0][0] == pytest.approx(dots[2][0] - dots[1][0], abs=0.2)
    assert dots[0][1] - dots[2][1] == pytest.approx((dots[0][1] - dots[1][1]) / 2, abs=0.2)  # upwards is less


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.7, 12), (1e-9, 3e-9), (0, 5e7), (0.999, 1.001)])
def test_ticks_are_round_and_inside(low, high):
    found = ticks(low, high, 5)
    assert 2 <= len(found) <= 7
    assert low <= found[0]
    assert found[-1] <= high
    steps = np.diff(found)
    assert steps == pytest.approx(steps[0])


def test_curves_of_several_validations_an_epoch_are_drawn_over_steps():
    curves: Curves = {"val/loss": [(4, 1.0), (9, 0.5), (14, 0.4)], "epoch": [(4, 0.0), (9, 0.0), (14, 1.0)]}
    assert ">step</text>" in figures(charts([("", curves)], None))[0].svg
    curves["epoch"] = [(4, 0.0), (9, 1.0), (14, 2.0)]
    assert ">epoch</text>" in figures(charts([("", curves)], None))[0].svg


def test_curves_that_have_no_room_are_named():
    curves: Curves = {f"val/{name}": [(1.0, 0.5)] for name in ("loss", *range(20))}
    curves["lr-SGD"] = [(1.0, 0.1)]
    *_, said = found = charts([("", curves)], None)
    assert [figure.caption for figure in figures(found)] == ["loss", *sorted(map(str, range(20)))[:12], "learning rate"]
    assert said == Paragraph("Only in TensorBoard, as the page would become too long: 2, 3, 4, 5, 6, 7, 8, 9.", "note")


def figures(blocks: list[Block]) -> list[Figure]:
    return [block for block in blocks if isinstance(block, Figure)]


@pytest.mark.parametrize(
    ("comment", "sentence"),
    [
        ("A small CNN.\n  python -m auks fit", "A small CNN."),
        ("y = 3.5x, with\nnoise. It takes seconds.", "y = 3.5x, with noise."),
        ("No end\n\nAnother paragraph.", "No end"),
        ("", ""),
    ],
)
def test_a_page_begins_with_the_first_sentence_of_the_config(comment, sentence):
    assert Shipped("a.yaml", comment, {}, []).first_sentence == sentence


def test_the_docstring_of_a_class_is_read_without_running_it(tmp_path, monkeypatch):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/__init__.py").write_text("from .deep import Deep as Net\nfrom ..images import SmallCNN")
    (tmp_path / "nets/deep.py").write_text('class Deep:\n    """Deep."""\n')
    (tmp_path / "images.py").write_text("from .nets.deep import Deep as SmallCNN")
    (tmp_path / "broken.py").write_text("class Net:\0")
    with monkeypatch.context() as patch:
        patch.setattr(facts, "package_folder", lambda: tmp_path)
        assert class_line("auks.nets.Net") == class_line("auks.nets.SmallCNN") == "Deep."
        assert class_line("auks.broken.Net") is None
    assert class_line("auks.images.SmallCNN") == "Classify images with one convolution."
    assert class_line("litlab.tasks.Classifier") == "Train any network with cross-entropy."  # through __init__
    assert class_line("auks.images.Gone") is None
    assert class_line("auks.gone.Gone") is None
    assert class_line("torch.optim.AdamW") == ""
    assert class_line("SmallCNN") == ""
