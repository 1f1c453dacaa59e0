"""What a report says about a regressor: predictions beside the truth, residuals, largest errors."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.callbacks.evaluation import pick_evenly
from litlab.commands.report.blocks import Block, Figure, Paragraph, Section, Table
from litlab.commands.report.drawings import draw_histogram, draw_scatter
from litlab.commands.report.samples import EvaluationContext, Render, number, row_table

SHOWN = 10  # rows, and as many of the largest errors
DOTS = 500  # of a drawing
TARGETS = 4  # that are drawn


class Regression:
    """Collects the predictions of a regressor.

    Args:
        test: The test.
    """

    def __init__(self, test: EvaluationContext) -> None:
        self.names = list(test.model.hparams.get("target_names") or [])
        self.test = test
        self._true: list[Tensor] = []  # (batch, target) each
        self._predicted: list[Tensor] = []  # the same
        self._worst: list[tuple[float, Tensor, Tensor, Render]] = []  # the largest error first
        self._some: list[tuple[Tensor, Tensor, Render]] = []

    @staticmethod
    def fits(outputs: dict[str, Any], batch: Any) -> bool:
        """Return whether these are predictions of numbers, and a batch of (inputs, target)."""
        predicted, target = outputs.get("predicted"), batch[1] if isinstance(batch, (tuple, list)) else None
        if not isinstance(predicted, Tensor) or not isinstance(target, Tensor):
            return False
        return predicted.ndim == 2 and target.numel() == predicted.numel()

    @property
    def task(self) -> str:
        """What the Hugging Face Hub calls it."""
        return "tabular-regression" if self.test.renderer.kind == "rows" else ""

    def add(self, outputs: dict[str, Any], batch: Any, number: int) -> None:
        """Keep a batch's predictions, and the rows with the largest errors."""
        predicted = outputs["predicted"].detach().float().cpu()
        true = batch[1].detach().float().cpu().reshape(predicted.shape)
        self._true.append(true)
        self._predicted.append(predicted)
        show = self.test.renderer.of_batch(batch, number)
        if show is None:
            return
        for place in pick_evenly(SHOWN, len(self._some), number, self.test.batches, len(true)).tolist():
            self._some.append((true[place], predicted[place], show(place)))
        errors = (predicted - true).abs().amax(dim=1)
        sizes, places = errors.topk(min(SHOWN, len(errors)))
        self._worst += [
            (size, true[place], predicted[place], show(place))
            for size, place in zip(sizes.tolist(), places.tolist(), strict=True)
        ]
        self._worst = sorted(self._worst, key=lambda row: -row[0])[:SHOWN]

    def sections(self) -> list[Section]:
        """Return residuals, and the largest errors."""
        true, predicted = torch.cat(self._true).numpy(), torch.cat(self._predicted).numpy()
        self.names = self.names or [f"target {place}" for place in range(true.shape[1])]
        errors = predicted - true
        finite = np.isfinite(errors).all(axis=1)
        if not finite.all():
            said = f"{(~finite).sum():,} predictions or true values are not numbers."
            return [Section("residuals", "Residuals", [Paragraph(said)])]
        rows = [
            [
                name, *(number(float(value)) for value in (
                    np.abs(error).mean(), np.sqrt(np.square(error).mean()), error.mean(),
                    *np.quantile(error, [0.05, 0.5, 0.95]),
                ))
            ]
            for name, error in zip(self.names, errors.T, strict=True)
        ]  # fmt: skip
        header = ["target", "mae", "rmse", "mean error", "5 %", "median", "95 %"]
        residuals: list[Block] = [
            Table(
                header, rows, f"Errors (predicted - true) of {len(true):,} test samples, with quantiles", numbers=True
            )
        ]
        chosen = np.linspace(0, len(true) - 1, min(DOTS, len(true))).round().astype(int)
        for place, name in list(enumerate(self.names))[:TARGETS]:
            scatter = draw_scatter(true[chosen, place], predicted[chosen, place], f"{name}: predicted by true value")
            bars = draw_histogram(errors[:, place], "predicted - true", f"{name}: how often errors occur")
            residuals.append(Figure(scatter, f"{name}: predicted by true value", f"predicted_{place}"))
            residuals.append(Figure(bars, f"{name}: errors", f"errors_{place}"))
        worst = [(wanted, guess, show) for _, wanted, guess, show in self._worst]
        return [
            Section("residuals", "Residuals", residuals),
            Section("mistakes", "Largest errors", self._rows(worst, "")),
        ]

    def samples(self) -> list[Block]:
        """Return some rows of the test split."""
        return self._rows(self._some, "Samples of the test split")

    def _rows(self, samples: list[tuple[Tensor, Tensor, Render]], caption: str) -> list[Block]:
        rows = []
        for true, predicted, show in samples:
            said: dict[str, str] = {}
            for name, wanted, guess in zip(self.names, true.tolist(), predicted.tolist(), strict=True):
                said |= {name: number(wanted), f"{name}, predicted": number(guess)}
            rows.append((said, show().row or {}))
        return [Table(*row_table(rows), caption)] if rows else []
