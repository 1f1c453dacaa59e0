"""What a page says of predictions: of a classifier, of a forecaster, of a regressor."""

import io
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from markupsafe import Markup
from torch import Tensor

from litlab.callbacks import evaluation
from litlab.commands.report.page import draw_lines, encode_figure
from litlab.runs.page import Section, encode, show
from litlab.util.text import decimals

SHOWN = 12  # mistakes
WINDOWS = 6  # of series
LETTERS = 400  # of a text
PIXELS = 96  # of an image
BINS = 15  # of the confidence, as torchmetrics has for its calibration error


class Collector:
    """Collects the predictions of a test, batch by batch; of the inputs it keeps those of the worst mistakes."""

    def __init__(self, trainer: Trainer, model: LightningModule) -> None:
        self.trainer, self.model = trainer, model
        self.data: Any = getattr(trainer, "datamodule", None)
        self.parts: list[tuple[Tensor, ...]] = []  # of each batch
        self.worst: list[tuple[float, tuple[str, str, str]]] = []  # how bad; caption, image and text
        self.windows: list[tuple[Tensor, ...]] = []

    def keep_worst(self, badness: Tensor, captions: list[str], inputs: Any, number: int) -> None:
        """Keep the samples of batch `number` with the highest badness (batch,) above 0."""
        values, places = badness.topk(min(SHOWN, len(badness)))
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            if value > 0:
                self.worst.append((value, (captions[place], *self._show(inputs, number, place))))
        self.worst = sorted(self.worst, key=lambda mistake: -mistake[0])[:SHOWN]

    def list_mistakes(self) -> list[Markup]:
        samples = [sample for _, sample in self.worst]
        return [show.gallery(samples) if samples else show.text("There is no mistake in the test split.")]

    def _show(self, inputs: Any, number: int, place: int) -> tuple[str, str]:
        if hasattr(self.data, "sample_index"):
            text = self.data.text("test", int(self.data.sample_index("test", number)[place]))
            return "", text[:LETTERS]
        if isinstance(inputs, Tensor) and inputs.ndim == 4 and inputs.shape[1] in (1, 3):
            return encode("png", encode_png(inputs[place].float().cpu(), self.data)), ""
        return "", ""


class Classification(Collector):
    """Confusions, calibration, and the most confident mistakes; `parts` are confidences, and whether they are right."""

    counts = torch.tensor(0)  # (true class, predicted class), int64

    @staticmethod
    def fits(outputs: dict[str, Any], batch: Any) -> bool:
        """Return whether these are logits (batch, classes), and a batch with a label for each."""
        return "logits" in outputs and outputs["logits"].ndim == 2 and is_pair(batch) and batch[1].ndim == 1

    def add(self, outputs: dict[str, Any], batch: Any, number: int) -> None:
        logits, labels = outputs["logits"].float().cpu(), batch[1].cpu()
        confidence, predicted = logits.softmax(dim=1).max(dim=1)
        self.counts = self.counts + evaluation.count_pairs(labels, predicted, logits.shape[1])
        self.parts.append((confidence, predicted == labels))

        names = evaluation.class_names(self.trainer, logits.shape[1])
        triples = zip(predicted.tolist(), confidence.tolist(), labels.tolist(), strict=True)
        captions = [f"{names[guess]} {sure:.0%}, is {names[label]}" for guess, sure, label in triples]
        self.keep_worst(confidence * (predicted != labels), captions, batch[0], number)

    def sections(self) -> list[Section]:
        names = evaluation.class_names(self.trainer, len(self.counts))
        table = evaluation.tabulate_classes(self.counts, names)
        rows = [[name, *map(decimals, values)] for name, *values in table.to_numpy(object).tolist()]
        classes = [show.table(list(table.columns), rows)]
        if len(names) <= evaluation.MOST_CLASSES:
            matrix = encode_figure(evaluation.draw_confusion_matrix(self.counts, names))
            classes.append(show.figure(matrix, "Confusion matrix: shares of each true class"))
        return [
            ("Classes", classes),
            ("Calibration", self._calibration()),
            ("Most confident mistakes", self.list_mistakes()),
        ]

    def _calibration(self) -> list[Markup]:
        """Return a reliability diagram and the expected calibration error (Guo et al. 2017, arXiv:1706.04599)."""
        confidence, right = (torch.cat(part).double().numpy() for part in zip(*self.parts, strict=True))
        bins = np.ceil(confidence * BINS)
        groups = [bins == place for place in np.unique(bins)]
        accuracy = np.array([right[group].mean() for group in groups])
        mean = np.array([confidence[group].mean() for group in groups])
        shares = np.array([group.mean() for group in groups])
        error = (shares * np.abs(accuracy - mean)).sum()
        text = (
            f"Expected calibration error: {error:.3f}. The mean confidence is {confidence.mean():.1%}, and "
            f"{right.mean():.1%} of the predictions are right."
        )
        lines = [("perfect", [0, 1], [0, 1], "C7--"), ("model", mean, accuracy, "C0o-")]
        drawing = draw_lines(lines, "confidence")
        return [show.text(text), show.figure(drawing, "Accuracy by confidence")]


class Forecasting(Collector):
    """Some forecasts, errors by step ahead, and the coverage; `parts` are sums over a batch, and its size."""

    @staticmethod
    def fits(outputs: dict[str, Any], batch: Any) -> bool:
        """Return whether these are forecasts (batch, horizon, column), and a batch with past and future."""
        return "forecast" in outputs and isinstance(batch, dict) and {"past", "future"} <= batch.keys()

    def add(self, outputs: dict[str, Any], batch: Any, number: int) -> None:
        future = batch["future"].float().cpu()
        names = [name for name in ("forecast", "lower", "upper") if outputs.get(name) is not None]
        forecast, *ends = [outputs[name].float().cpu() for name in names]
        sums = [(forecast - future).abs()]
        if ends:
            sums.append(((ends[0] <= future) & (future <= ends[1])).float())
        self.parts.append((torch.stack(sums).sum(dim=1), torch.tensor(len(future))))

        batches = self.trainer.num_test_batches[0]
        past = batch["past"].float().cpu()[:, -max(2 * future.shape[1], 24) :]
        for place in evaluation.pick_evenly(WINDOWS, len(self.windows), number, batches, len(future)).tolist():
            self.windows.append(tuple(part[place] for part in (past, future, forecast, *ends)))

    def sections(self) -> list[Section]:
        sums, counts = zip(*self.parts, strict=True)
        means = torch.stack(sums).sum(dim=0) / torch.stack(counts).sum()  # (quantity, step ahead, column)
        steps = range(1, means.shape[1] + 1)
        errors = draw_lines([("", steps, means[0].mean(dim=1), "C0.-")], "steps ahead")
        sections = [
            ("Forecasts", [self._draw(place) for place in range(len(self.windows))]),
            ("Errors", [show.figure(errors, "Mean absolute error, scaled, by step ahead")]),
        ]
        if len(means) > 1:
            aim = getattr(self.model, "coverage", None)
            text = f"The intervals cover {means[1].mean():.1%} of the truth in the test split"
            text += f", and are made to cover {aim:.0%}." if aim else "."
            sections.append(("Coverage", [show.text(text)]))
        return sections

    def _draw(self, number: int) -> Markup:
        parts = self.windows[number]
        names = list(getattr(self.data, "target_names", map(str, range(parts[0].shape[1]))))
        column = number % len(names)
        labels = ("past", "truth", "forecast", "lower end", "upper end")
        lines = []
        for label, part, line in zip(labels, parts, ("C7", "C0", "C1", "C1:", "C1:"), strict=False):
            values = part[:, column]
            if hasattr(self.data, "scale"):  # in the units of the file
                values = values * self.data.scale[column] + self.data.mean[column]
            steps = range(1 - len(part), 1) if label == "past" else range(1, len(part) + 1)
            lines.append((label, steps, values, line))
        return show.figure(draw_lines(lines, "steps ahead"), names[column])


class Regression(Collector):
    """Predictions beside the truth, and the largest errors; `parts` are true and predicted values (batch, target)."""

    @staticmethod
    def fits(outputs: dict[str, Any], batch: Any) -> bool:
        """Return whether these are predictions (batch, target), and a batch with the truth."""
        return "predicted" in outputs and is_pair(batch) and batch[1].numel() == outputs["predicted"].numel()

    def add(self, outputs: dict[str, Any], batch: Any, number: int) -> None:
        predicted = outputs["predicted"].float().cpu()
        true = batch[1].float().cpu().reshape(predicted.shape)
        self.parts.append((true, predicted))
        captions = [
            f"{', '.join(map(decimals, guess))}, is {', '.join(map(decimals, truth))}"
            for guess, truth in zip(predicted.tolist(), true.tolist(), strict=True)
        ]
        self.keep_worst((predicted - true).abs().amax(dim=1), captions, batch[0], number)

    def sections(self) -> list[Section]:
        true, predicted = (torch.cat(part) for part in zip(*self.parts, strict=True))
        names = self.model.hparams.get("target_names") or [str(column) for column in range(true.shape[1])]
        figures = []
        for name, x, y in zip(names, true.T, predicted.T, strict=True):
            ends = [x.min(), x.max()]
            drawing = draw_lines([("", x[:1000], y[:1000], "C0."), ("", ends, ends, "C7--")], "true value")
            figures.append(show.figure(drawing, f"{name}: predicted by true value"))
        return [("Predictions", figures), ("Largest errors", self.list_mistakes())]


KINDS = (Classification, Forecasting, Regression)  # the first that fits is taken


def is_pair(batch: Any) -> bool:
    return isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor)


def encode_png(image: Tensor, data: Any) -> bytes:
    """Return a file of an image (channel, height, width) as it was before it was normalised by its DataModule."""
    from PIL import Image

    if hasattr(data, "std"):
        mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in (data.mean, data.std))
        image = image * std + mean
    pixels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).squeeze(2).numpy()
    picture = Image.fromarray(pixels)
    picture.thumbnail((PIXELS, PIXELS))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()
