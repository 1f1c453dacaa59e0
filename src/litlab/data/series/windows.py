"""All windows of a part of a series, cut out by indexing."""

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Windows(Dataset[dict[str, Tensor]]):
    """Windows at consecutive rows; indexed by a tensor, it returns a batch.

    A window's rows lie in memory one after the other, so a batch is a row-wise gather from a strided view of the
    series: nothing is stored per window, and no Python runs per window.

    Args:
        values: float32 of shape (time, channel), in memory or on a device.
        calendar: float32 of shape (time, feature), on the same device; None: there are no covariates.
        starts: Rows of the series where the past of each window begins.
        context_length: Rows of the past.
        horizon: Rows of the future.
        known: Whether the future is known; else the batches have none, and `values` may end with the past.
    """

    def __init__(
        self,
        values: Tensor,
        calendar: Tensor | None,
        starts: range,
        context_length: int,
        horizon: int,
        *,
        known: bool = True,
    ) -> None:
        self.values = values
        self.starts = starts
        self.views = {"past": _view(values, context_length)}
        if known:
            self.views["future"] = _view(values[context_length:], horizon)
        if calendar is not None:
            self.views["calendar"] = _view(calendar, context_length + horizon)
        self.widths = {"calendar": calendar.shape[1]} if calendar is not None else {}

    @property
    def device(self) -> torch.device:
        """Where the series is."""
        return self.values.device

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the windows, int64 of shape (batch,), on the CPU.

        Returns:
            past: float32 (batch, context_length, channel); future: (batch, horizon, channel), where it is known;
            calendar: (batch, context_length + horizon, feature), where there are covariates; start: int64 (batch,),
            row of the series where the past begins.
        """
        start = index.to(self.values.device, non_blocking=True) + self.starts.start
        channels = self.values.shape[1]
        batch = {
            name: view.index_select(0, start).view(len(start), -1, self.widths.get(name, channels))
            for name, view in self.views.items()
        }
        return {**batch, "start": start}


def _view(rows: Tensor, length: int) -> Tensor:
    """(window, length x column): the window that begins at each row. It shares the memory of the rows."""
    columns = rows.shape[1]
    return rows.contiguous().flatten().unfold(0, length * columns, columns)
