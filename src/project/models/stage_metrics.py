"""Loss and metrics of one stage, at the price of a list append per step."""

from torch import Tensor, nn, stack, tensor
from torch import cat as concatenate
from torchmetrics import MetricCollection, SumMetric


class StageMetrics(nn.Module):
    """Mean loss and metrics of a stage (train, val or test).

    Updating a torchmetrics collection at every step costs more than a small network's step (about 0.2 ms of CPU), so
    steps only remember their tensors and `flush` updates the metrics for many steps at once. Every sample counts
    exactly once, and nothing waits for the device until `compute`.

    Args:
        metrics: The metrics, updated with (logits, labels). Cloned, so that each stage counts on its own.
        stage: Prefix of the logged names: train, val or test.
        flush_every: Steps remembered at most; bounds the memory that the remembered logits take.
    """

    def __init__(self, metrics: MetricCollection, stage: str, flush_every: int = 50) -> None:
        super().__init__()
        self.stage = stage
        # Sums, because MeanMetric leaves out losses that are not numbers, or ignores the weights if told not to.
        self.loss = SumMetric(nan_strategy="disable")
        self.samples = SumMetric(nan_strategy="disable")
        self.metrics = metrics.clone(prefix=f"{stage}/")
        self.flush_every = flush_every
        self._steps: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Remembers one step.

        Args:
            loss: Mean loss of the batch, shape ().
            logits: Shape (batch, classes).
            labels: Shape (batch,).
        """
        if len(self._steps) >= self.flush_every:
            self.flush()
        if logits.is_cuda:  # with CUDA graphs the next step overwrites it
            loss, logits = loss.clone(), logits.clone()
        self._steps.append((loss.detach(), logits.detach(), labels))

    def flush(self) -> Tensor:
        """Brings the metrics up to date with every remembered step; there must be one at least.

        Returns:
            Mean loss of the samples of these steps, shape (), on their device.
        """
        losses, logits, labels = zip(*self._steps, strict=True)
        self._steps.clear()
        values = stack(losses).float()
        weights = tensor([len(label) for label in labels], dtype=values.dtype).to(values.device, non_blocking=True)
        self.loss.update(values @ weights)
        self.samples.update(weights.sum())
        self.metrics.update(concatenate(logits).float(), concatenate(labels))
        return values @ weights / weights.sum()

    def compute(self) -> dict[str, Tensor]:
        """Means over everything since the last `reset`, over all ranks, by logged name such as ``val/acc``."""
        if self._steps:
            self.flush()
        return {f"{self.stage}/loss": self.loss.compute() / self.samples.compute(), **self.metrics.compute()}

    def reset(self) -> None:
        """Starts the next epoch."""
        self._steps.clear()
        self.loss.reset()
        self.samples.reset()
        self.metrics.reset()
