"""Loss, accuracy and calibration of an ensemble's members, and calibration of the ensemble."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from litlab.metrics.gathering import gather_rows
from litlab.metrics.mean_loss import MeanLoss, Reduce

NAMES = ("ece", "member_loss", "member_acc", "member_ece")  # logged after ``test/``


class MemberMetrics(nn.Module):
    """Loss, accuracy and calibration of the mean member, and calibration of the ensemble, over the test split.

    The expected calibration error is the mean distance between confidence and accuracy, in 15 bins of the confidence
    (Guo et al. 2017, arXiv:1706.04599).

    Args:
        members: Number of members.
        num_classes: Number of classes.
    """

    def __init__(self, members: int, num_classes: int) -> None:
        super().__init__()

        def calibration() -> Metric:
            return MulticlassCalibrationError(num_classes, n_bins=15, norm="l1", validate_args=False)

        # The labels are right: the loss has refused others.
        self.accuracies = nn.ModuleList(
            MulticlassAccuracy(num_classes, average="micro", validate_args=False) for _ in range(members)
        )
        self.calibrations = nn.ModuleList(calibration() for _ in range(members))
        self.calibration = calibration()
        self.loss = MeanLoss()
        self.seen = False  # whether there was a batch since `reset`
        for metric in self._metrics():
            metric.dist_sync_fn = gather_rows

    def reset(self, device: torch.device) -> None:
        """Start a test, on this device."""
        self.seen = False
        self.loss.reset(device)
        for metric in self._metrics():
            metric.reset()

    def add(self, members: Tensor, ensemble: Tensor, target: Tensor) -> None:
        """Add a batch.

        Args:
            members: Logits of the members, (member, batch, classes).
            ensemble: Logits of the ensemble, (batch, classes).
            target: Labels, (batch,).
        """
        self.seen = True
        members = members.float()
        self.loss.add(F.cross_entropy(members.flatten(0, 1), target.repeat(len(members))), len(target))
        accuracies: Any = self.accuracies
        calibrations: Any = self.calibrations
        for logits, accuracy, calibration in zip(members, accuracies, calibrations, strict=True):
            accuracy.update(logits, target)
            calibration.update(logits.softmax(dim=1), target)
        self.calibration.update(ensemble.float().softmax(dim=1), target)

    def compute(self, reduce: Reduce) -> dict[str, Tensor]:
        """Return the means over all ranks, by logged name such as ``test/member_acc``."""
        values = (
            self.calibration.compute(),
            self.loss.compute(reduce),
            _mean(self.accuracies),
            _mean(self.calibrations),
        )
        return {f"test/{name}": value for name, value in zip(NAMES, values, strict=True)}

    def _metrics(self) -> list[Metric]:
        return [metric for metric in self.modules() if isinstance(metric, Metric)]


def _mean(metrics: Any) -> Tensor:
    return torch.stack([metric.compute() for metric in metrics]).mean()
