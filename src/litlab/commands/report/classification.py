"""What a report says about a classifier: confusions, results of each class, calibration, mistakes."""

import heapq
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.callbacks.evaluation import class_names, pick_evenly
from litlab.commands.report.blocks import Block, Figure, Gallery, Paragraph, Section, Table
from litlab.commands.report.drawings import MOST_CLASSES, draw_matrix, draw_reliability
from litlab.commands.report.samples import EvaluationContext, Render, RenderedSample, row_table

BINS = 15  # of the confidence, as torchmetrics has for its calibration error
SHOWN = 16  # samples, and as many mistakes
TEXTS = 8  # the same of texts, which take more room
TASKS = {"images": "image-classification", "texts": "text-classification", "rows": "tabular-classification"}


class Classification:
    """Collects the predictions of a classifier, batch by batch; of the inputs it keeps a few.

    Args:
        test: The test.
    """

    def __init__(self, test: EvaluationContext) -> None:
        self.test = test
        self.classes = 0
        self._counts = torch.zeros(0, 0)  # (true class, predicted class)
        self._confidence: list[Tensor] = []  # (batch,) each
        self._right: list[Tensor] = []  # bool, (batch,) each
        self._mistakes: list[tuple[float, int, int, int, Render]] = []  # a heap, the least confident one first
        self._some: list[tuple[int, int, float, Render]] = []  # spread over the test
        self._seen = 0

    @staticmethod
    def fits(outputs: dict[str, Any], batch: Any) -> bool:
        """Return whether these are the logits of a classifier and a batch of (inputs, labels)."""
        pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        logits, labels = outputs.get("logits"), batch[1] if pair else None
        if not isinstance(logits, Tensor) or not isinstance(labels, Tensor) or labels.is_floating_point():
            return False
        return logits.ndim == 2 and labels.shape == logits.shape[:1]

    @property
    def task(self) -> str:
        """What the Hugging Face Hub calls it."""
        return TASKS.get(self.test.renderer.kind, "")

    def add(self, outputs: dict[str, Any], batch: Any, number: int) -> None:
        """Count a batch, and keep its most confident mistakes."""
        logits, labels = outputs["logits"].detach().float().cpu(), batch[1].long().cpu()
        if not self.classes:
            self.classes = logits.shape[1]
            self._counts = torch.zeros(self.classes, self.classes, dtype=torch.int64)
        confidence, predicted = logits.softmax(dim=1).max(dim=1)
        right = predicted == labels
        places = labels * self.classes + predicted
        self._counts += places.bincount(minlength=self.classes**2).view(self.classes, self.classes)
        self._confidence.append(confidence)
        self._right.append(right)
        show = self.test.renderer.of_batch(batch, number)
        if show is not None:
            self._keep(show, labels, predicted, confidence, number)
        self._seen += len(labels)

    def _keep(self, show: Any, labels: Tensor, predicted: Tensor, confidence: Tensor, number: int) -> None:
        for place in pick_evenly(SHOWN, len(self._some), number, self.test.batches, len(labels)).tolist():
            self._some.append((int(labels[place]), int(predicted[place]), float(confidence[place]), show(place)))
        wrong = torch.where(predicted == labels, -1.0, confidence)
        best, places = wrong.topk(min(SHOWN, len(wrong)))
        for sure, place in zip(best.tolist(), places.tolist(), strict=True):
            if sure < 0 or (len(self._mistakes) == SHOWN and sure <= self._mistakes[0][0]):
                break
            mistake = (sure, self._seen + place, int(labels[place]), int(predicted[place]), show(place))
            heapq.heappush(self._mistakes, mistake)
            if len(self._mistakes) > SHOWN:
                heapq.heappop(self._mistakes)

    def sections(self) -> list[Section]:
        """Return confusions and classes, calibration, and mistakes."""
        names, counts = class_names(self.test.trainer, self.classes), self._counts.numpy()
        confusions: list[Block] = [_confusions(counts, names), _each_class(counts, names)]
        if self.classes <= MOST_CLASSES:
            caption = "Rows are the true classes, columns the predicted ones; a row's colours are shares of its class"
            confusions.insert(0, Figure(draw_matrix(counts, names), caption, "confusion_matrix", wide=True))
        confidence, right = torch.cat(self._confidence).numpy(), torch.cat(self._right).numpy()
        found = sorted(self._mistakes, reverse=True)
        mistakes = [(true, predicted, sure, show()) for sure, _, true, predicted, show in found]
        return [
            Section("classes", "Classes and confusions", confusions),
            Section("calibration", "Calibration", _calibration(confidence, right)),
            Section("mistakes", "Most confident mistakes", _samples(mistakes, names, "")),
        ]

    def samples(self) -> list[Block]:
        """Return some test samples with their predictions."""
        samples = [(true, predicted, sure, show()) for true, predicted, sure, show in self._some]
        return _samples(samples, class_names(self.test.trainer, self.classes), "Samples of the test split")


def _confusions(counts: np.ndarray, names: list[str]) -> Block:
    """Return the pairs of classes that are confused most often."""
    off = counts.copy()
    np.fill_diagonal(off, 0)
    order = [divmod(int(place), len(counts)) for place in off.ravel().argsort()[::-1][:8]]
    rows = [
        [
            f"{names[true]} taken for {names[seen]}",
            f"{off[true, seen]:,}",
            f"{off[true, seen] / counts[true].sum():.1%}",
        ]
        for true, seen in order
        if off[true, seen]
    ]
    if not rows:
        return Paragraph("There is no mistake in the test split.")
    return Table(["", "samples", "of the true class"], rows, "The most frequent confusions", numbers=True)


def _each_class(counts: np.ndarray, names: list[str]) -> Table:
    right, true, predicted = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.stack([right / predicted, right / true, 2 * right / (true + predicted)], axis=1)
    rows = [
        [name, f"{true[place]:,}", *("-" if np.isnan(score) else f"{score:.3f}" for score in scores[place])]
        for place, name in enumerate(names)
    ]
    return Table(["class", "samples", "precision", "recall", "F1"], rows, "Each class in the test split", numbers=True)


def _calibration(confidence: np.ndarray, right: np.ndarray) -> list[Block]:
    """Return a reliability diagram and the expected calibration error (Guo et al. 2017, arXiv:1706.04599)."""
    if missing := int((~np.isfinite(confidence)).sum()):
        return [Paragraph(f"{missing:,} of {len(confidence):,} predictions are not numbers.")]
    edges = np.linspace(0, 1, BINS + 1)
    place = np.clip(np.digitize(confidence, edges[1:-1], right=True), 0, BINS - 1)
    samples = np.bincount(place, minlength=BINS)
    with np.errstate(invalid="ignore"):
        accuracy = np.bincount(place, right, BINS) / samples
        mean = np.bincount(place, confidence, BINS) / samples
    share = samples / len(confidence)
    ece = float(np.nansum(share * np.abs(accuracy - mean)))
    difference = float(confidence.mean() - right.mean())
    verdict = "overconfident" if difference > 0 else "underconfident"
    said = (
        f"Expected calibration error: {ece:.3f}. The mean confidence is {confidence.mean():.1%}, and "
        f"{right.mean():.1%} of the predictions are right"
    )
    said += f": on average the model is {verdict}." if abs(difference) >= 0.01 else "."
    label = f"Accuracy by confidence; expected calibration error {ece:.3f}"
    drawing = Figure(draw_reliability(edges, accuracy, share, label), "Accuracy by confidence", "calibration")
    return [Paragraph(said), drawing]


def _samples(samples: list[tuple[int, int, float, RenderedSample]], names: list[str], caption: str) -> list[Block]:
    if not samples:
        return []
    if samples[0][3].row is not None:
        rows = [
            ({"class": names[true], "predicted": f"{names[seen]} {sure:.0%}"}, shown.row or {})
            for true, seen, sure, shown in samples
        ]
        return [Table(*row_table(rows), caption)]
    found = []
    for true, seen, sure, shown in samples[: TEXTS if samples[0][3].text else SHOWN]:
        said = f"{names[seen]} {sure:.0%}" + ("" if true == seen else f", is {names[true]}")
        found.append(shown.captioned(f"predicted {said}" if shown.text else said, true != seen))
    return [Gallery(found, caption)]
