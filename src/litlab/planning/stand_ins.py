"""What takes the place of a run's strategy and data while a step is looked at."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy, Strategy
from torch import Tensor

from litlab.parallel.strategy import ShardedStrategy
from litlab.planning.layout import Layout
from litlab.planning.ledger import BACKWARD, FORWARD
from litlab.planning.step import Step


class Watched(Strategy):
    """The parts of a strategy that tell where a step is, and move nothing."""

    step: Step

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Note that the forward pass begins."""
        self.step.ledger.phase = FORWARD
        return super().training_step(*args, **kwargs)

    def backward(self, closure_loss: Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Note that the backward pass begins, and ends."""
        self.step.ledger.phase = BACKWARD
        loss = super().backward(closure_loss, optimizer, *args, **kwargs)
        assert self.lightning_module is not None
        self.step.after_backward(self.lightning_module.trainer)
        return loss

    def setup(self, trainer: Trainer) -> None:
        """Begin when the model is as it is to be."""
        super().setup(trainer)
        assert self.model is not None
        self.step.set_up(self.model)

    def model_to_device(self) -> None:
        """Leave it where it is."""

    def teardown(self) -> None:
        """Leave everything where it is."""


class OneDevice(Watched, SingleDeviceStrategy):
    """One device, whatever it is."""

    def __init__(self, step: Step) -> None:
        super().__init__(torch.device("cpu"))
        self.step = step


class Sharded(Watched, ShardedStrategy):
    """`ShardedStrategy` on a mesh of processes that don't exist."""

    def __init__(self, step: Step, layout: Layout, mesh: Any) -> None:
        super().__init__(layout.tensor, layout.reshard)
        self.step, self._device_mesh = step, mesh

    def setup_environment(self) -> None:
        """Leave processes and mesh as they are."""
        assert self.accelerator is not None
        self.accelerator.setup_device(self.root_device)

    def _configure_launcher(self) -> None:
        """Start nothing."""

    def barrier(self, name: str | None = None) -> None:
        """Wait for nobody."""

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return what this process has."""
        return obj


class Batches(LightningDataModule):
    """The same batch again and again, beside all that the data says of itself."""

    def __init__(self, data: LightningDataModule, batch: Any) -> None:
        super().__init__()
        self._data, self._batch = data, batch

    def train_dataloader(self) -> Any:
        """Return many of them."""
        return _Repeated(self._batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_data"], name)


class _Repeated:
    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return 1000

    def __iter__(self) -> Iterator[Any]:
        return (self.batch for _ in range(len(self)))
