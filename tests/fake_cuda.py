"""A fit on a CUDA device that does not exist, which finds mixed devices and steps that wait for the
device.

Under `FakeTensorMode` tensors have shape, type and device, but no numbers; those on a CUDA device
exist on machines without one. An operation on tensors of two devices raises as it would on a GPU.
What can't be had without a driver is the backward pass (every parameter gets a gradient that is
made up), and whatever depends on the numbers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.loops import evaluation_loop, fit_loop
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.connectors.data_connector import _DataLoaderSource
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.data import dataloader

from litlab.callbacks import RunSummary

expect_warnings = pytest.mark.filterwarnings(
    "ignore:.*pin_memory", "ignore:The number of training batches .* smaller than the logging"
)
# Small, and without what needs numbers or reads them: results, checkpoints, a progress bar, a log
# step.
FEW = """
    --checkpoint=null --early_stopping=null --trainer.enable_progress_bar=false
    --trainer.log_every_n_steps=1000 --trainer.precision=32-true --trainer.limit_train_batches=3
    --trainer.limit_val_batches=2 --trainer.limit_test_batches=2 --test_after_fit=false
    --trainer.max_epochs=1 --trainer.inference_mode=false --ema.decay=0.9 --data.batch_size=8
""".split()
DEVICE = torch.device("cuda", 0)
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Waited(AssertionError):
    """A step waits for the device."""


class Watch(TorchDispatchMode):
    """Raises where a step waits for the device; elsewhere numbers that are read are made up.

    Waiting are reading a value and copies in either direction, unless they are marked
    `non_blocking`.
    """

    in_step = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            if args[0].device.type == "cuda":
                self.waits("a value is read")
            if args[0].constant is None:
                return _made_up(args[0])
        if func is torch.ops.aten.bincount.default:  # as long as its largest value says
            self.waits("bincount")
            return args[0].new_zeros(args[2])
        result = func(*args, **kwargs)
        if func in COPIES and isinstance(result, FakeTensor):
            source = args[1] if func is torch.ops.aten.copy_.default else args[0]
            blocking = not kwargs.get("non_blocking", len(args) > 2 and args[2])
            before, after = source.device.type, result.device.type
            if blocking and before != after:
                self.waits(f"{tuple(source.shape)} is copied from {before} to {after}")
        return result

    def waits(self, what: str) -> None:
        """Raise within a step.

        Raises:
            Waited: If this is one.
        """
        if self.in_step:
            raise Waited(what)


def _made_up(tensor: Tensor) -> Any:
    return True if tensor.dtype == torch.bool else 0.5 if tensor.is_floating_point() else 1


class EndsOfSteps(Callback):
    """Begins to compute without numbers, and tells `Watch` where there is no step. It has to be the
    first callback.
    """

    def __init__(self, watch: Watch, modes: ExitStack) -> None:
        self.watch = watch
        self.modes = modes

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Begin to compute without numbers, now that the data has been set up with them."""
        others = [callback for callback in trainer.callbacks if callback is not self]
        trainer.callbacks = [self, *others]  # the model puts one of its own before
        if stage == "fit":
            self.modes.enter_context(fake_modes(self.watch))
            # Before a callback copies it: what is real can no longer be copied
            pl_module.to(DEVICE)

    def _end(self, *anything: Any) -> None:
        self.watch.in_step = False

    def on_train_batch_end(self, trainer: Trainer, *anything: Any) -> None:
        if trainer.is_last_batch:  # a wait an epoch, as to measure it, costs nothing
            self._end()

    on_train_epoch_end = on_validation_start = on_validation_epoch_end = on_exception = _end

    def on_test_epoch_end(self, *anything: Any) -> None:
        """Stop: what comes now looks at results, which there are none of."""
        self._end()
        raise Enough


class Enough(Exception):
    """Ends a test."""


class FakeCUDA(SingleDeviceStrategy):
    """Trains on the device that does not exist, in bf16-mixed.

    A step begins with its batch. The first one of each stage is not watched: it may look at the
        data.
    """

    def __init__(self, watch: Watch, steps: Counter[str]) -> None:
        super().__init__(DEVICE, _Anywhere(), precision_plugin=MixedPrecision("bf16-mixed", "cuda"))
        self.watch = watch
        self.steps = steps

    def batch_to_device(self, batch: Any, *rest: Any, **kwargs: Any) -> Any:
        """Begin a step."""
        stage = str(self.lightning_module.trainer.state.stage.value)
        self.watch.in_step = self.steps[stage] > 0
        self.steps[stage] += 1
        return super().batch_to_device(batch, *rest, **kwargs)

    def backward(self, closure_loss: Tensor, optimizer: Any, *rest: Any, **kwargs: Any) -> Tensor:
        """Do what comes before and after a backward pass, and make the gradients up."""
        loss = self.precision_plugin.pre_backward(closure_loss, self.lightning_module)
        assert loss.requires_grad
        for parameter in self.lightning_module.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        return self.precision_plugin.post_backward(loss, self.lightning_module)

    def model_to_device(self) -> None:
        """Leave everything where it is."""

    teardown = model_to_device


class _Anywhere(CPUAccelerator):
    def setup_device(self, device: torch.device) -> None:
        """Take any."""


@contextmanager
def fake_modes(watch: Watch) -> Iterator[None]:
    """Let tensors on `DEVICE` be made and moved, where `Watch` sees it."""
    overwrites = "get_overwrite_module_params_on_conversion"
    with (
        mock.patch.object(torch.__future__, overwrites, return_value=True),  # none in a real one
        mock.patch.object(Tensor, "__deepcopy__", _copy),
        mock.patch.object(nn.RNNBase, "flatten_parameters"),  # asks where they lie in memory
        torch.backends.cudnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
        FakeTensorMode(allow_non_fake_inputs=True),
        watch,
    ):
        yield


def _copy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    copied = self.detach().clone()
    if isinstance(self, nn.Parameter):
        copied = nn.Parameter(copied, self.requires_grad)
    return memo.setdefault(id(self), copied)


def _outside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with real tensors."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return run


@pytest.fixture
def on_fake_cuda(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Lets the next `fit` of the command line train, validate and test on the device that does not
    exist.

    Returns:
        The number of steps of each stage, after the fit.
    """
    watch, fit, steps = Watch(), Trainer.fit, Counter[str]()
    for name, value in {
        "is_bf16_supported": True, "get_device_name": "fake",
        "get_device_properties": SimpleNamespace(major=9, total_memory=1), "mem_get_info": (0, 1),
        "reset_peak_memory_stats": None, "max_memory_allocated": 0, "max_memory_reserved": 0,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, mock.Mock(return_value=value))
    monkeypatch.setattr(torch.cuda, "default_generators", (torch.Generator(),))
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(
        torch.accelerator, "synchronize", lambda *_: watch.waits("the device is synchronized")
    )
    for loop in (fit_loop, evaluation_loop):  # it counts on the device
        monkeypatch.setattr(loop, "has_len_all_ranks", lambda loader, *_: len(loader) > 0)
    for kind, name in (
        (_DataLoaderSource, "dataloader"), (dataloader.DataLoader, "__iter__"),
        (dataloader._BaseDataLoaderIter, "__next__"),
    ):  # fmt: skip
        monkeypatch.setattr(kind, name, _outside(getattr(kind, name)))

    def fit_and_test(trainer: Trainer, model: Any, datamodule: Any, **kwargs: Any) -> None:
        with ExitStack() as modes:
            strategy = FakeCUDA(watch, steps)
            trainer._accelerator_connector.strategy = strategy
            trainer.callbacks.insert(0, EndsOfSteps(watch, modes))  # pyright: ignore[reportAttributeAccessIssue]
            for hook in ("prepare_data", "setup"):
                setattr(datamodule, hook, _outside(getattr(datamodule, hook)))
            fit(trainer, model, datamodule=datamodule)
            with pytest.raises(Enough):
                trainer.test(model, datamodule, verbose=False)

    monkeypatch.setattr(Trainer, "fit", fit_and_test)
    monkeypatch.setattr(RunSummary, "print_summary", lambda *_: None)  # there are no numbers
    return steps
