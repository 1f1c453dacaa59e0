"""One training step on tensors without numbers: what it holds in memory, on one device."""

import logging
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.data import DataLoader
from torchmetrics import Metric

from litlab.callbacks.free_gradients import FreeGradients
from litlab.cli.precision import ExperimentTrainer
from litlab.errors import UserError, first_line
from litlab.planning.ledger import BACKWARD, FORWARD, OPTIMIZER, UPDATE, Ledger


def measure(
    build_model: Callable[[], LightningModule], callbacks: list[Callback], batch: Any, is_gpu: bool, **settings: Any
) -> Ledger:
    """Look at a training step on one device.

    Args:
        build_model: Makes the model.
        callbacks: Those that change what a step keeps.
        batch: A training batch.
        is_gpu: Whether it is planned for a GPU.
        **settings: Arguments of the Trainer.

    Raises:
        UserError: If the step can't be had without numbers.
    """
    ledger = Ledger()
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))  # what Lightning says of so short a fit
        log = logging.getLogger("lightning.pytorch.utilities.rank_zero")
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.ERROR)
        trainer = ExperimentTrainer(
            accelerator="cpu", devices=1, strategy=FakeDevice(ledger), plugins=[LightningEnvironment()], barebones=True,
            callbacks=[*callbacks, FreeGradients(), Phases(ledger, is_gpu)], **settings,
        )  # fmt: skip
        with torch.device("meta"):
            model = build_model()
        model = trainer.precision_plugin.convert_module(model)  # in place, as tensors without numbers can't be

        stack.enter_context(set_checkpoint_early_stop(False))  # it leaves modules without calling their hooks
        mode = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(ledger)
        batch = tree_map_only(Tensor, mode.from_tensor, batch)
        try:
            with suppress(Enough):
                trainer.fit(model, DataLoader([batch] * 1000, batch_size=None))
        except RuntimeError as error:  # of torch, where it needs the numbers
            layer = ledger.layers[-1] if ledger.layers else "a training step"
            raise UserError(
                f"--plan: {layer} can't be had without the numbers in its tensors ({first_line(error)}); use --check, "
                "which runs a few steps"
            ) from error
    return ledger


class Enough(Exception):
    """The step has been looked at."""


class Phases(Callback):
    """Tells a ledger what a fit is doing. What counts is the second step, when the optimizer has its state."""

    def __init__(self, ledger: Ledger, is_gpu: bool) -> None:
        self.ledger, self.is_gpu = ledger, is_gpu

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization:
            raise UserError(
                f"--plan: {type(pl_module).__name__} steps its optimizers itself, so where a step begins is not "
                "known; use --check, which runs a few steps"
            )
        # The last epoch needs most: all is trained that was frozen.
        trainer.fit_loop.epoch_progress.current.processed = (trainer.max_epochs or 1) - 1
        for group in (group for optimizer in trainer.optimizers for group in optimizer.param_groups):
            if self.is_gpu and group.get("foreach", False) is None and not group.get("fused"):
                group["foreach"] = True  # torch's choice on GPUs

    def on_train_batch_start(self, *_: Any) -> None:
        self.ledger.phase = FORWARD
        self.ledger.peaks.clear()
        self.ledger.summed = 0

    def on_before_backward(self, *_: Any) -> None:
        self.ledger.phase = BACKWARD

    def on_before_optimizer_step(self, *_: Any) -> None:
        self.ledger.phase = UPDATE

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        for parameter, state in (entry for optimizer in trainer.optimizers for entry in optimizer.state.items()):
            for value in state.values():
                self.ledger.assign(value, self.ledger.use_of(parameter)._replace(kind=OPTIMIZER))
        if trainer.global_step == 2:
            raise Enough


class FakeDevice(SingleDeviceStrategy):
    """One device, on which a model of the meta device gets tensors without numbers."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(torch.device("cpu"))
        self.ledger = ledger

    def setup(self, trainer: Trainer) -> None:
        model = self.model
        assert model is not None
        fakes = {tensor: torch.empty_like(tensor, device="cpu") for tensor in (*model.parameters(), *model.buffers())}
        for parameter in model.parameters():  # one that is tied stays so
            fakes[parameter] = nn.Parameter(fakes[parameter], parameter.requires_grad)
        for module in model.modules():
            for name, tensor in {**module._parameters, **module._buffers}.items():
                setattr(module, name, fakes.get(tensor))
            if isinstance(module, Metric):
                module._apply(lambda tensor: torch.empty_like(tensor, device="cpu"))
        self.ledger.watch(model)
        self.setup_optimizers(trainer)

    def teardown(self) -> None:
        """Leave everything where it is."""
