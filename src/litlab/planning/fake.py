"""Tensors without numbers, on processes that don't exist: what a step needs to be looked at without being run."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

METAS = "_propagate_tensor_meta_non_cached"

# What CUDA's autocast computes in float32, and the CPU's doesn't. Their results are kept for the backward pass.
WIDE = ((F, "layer_norm"), (F, "group_norm"), (F, "rms_norm"), (F, "softmax"), (torch, "softmax"), (Tensor, "softmax"))


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Let the CPU's operations keep what those of a GPU keep: norms in float32, masks of dropout in a byte each."""
    with ExitStack() as stack:
        for owner, name in WIDE:
            stack.enter_context(mock.patch.object(owner, name, _wide(getattr(owner, name))))
        stack.enter_context(mock.patch.object(F, "dropout", _dropout))
        yield


def _wide(function: Any) -> Any:
    def run(inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        is_half = torch.is_autocast_enabled("cpu") and inputs.is_floating_point()
        return function(inputs.float() if is_half else inputs, *args, **kwargs)

    return run


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(input, p, training)[0] if training and p else input


@contextmanager
def without_numbers() -> Iterator[FakeTensorMode]:
    """Let all tensors that are made have a shape and a type only. Weights are not loaded, either."""
    from torchvision.models import WeightsEnum

    with ExitStack() as stack:
        for owner, name, value in (
            (WeightsEnum, "get_state_dict", lambda *_, **__: {}),
            (Tensor, "__deepcopy__", _copy),
            (dist, "barrier", lambda *_, **__: None),  # torch 2.10 has none without numbers
            (nn.Module, "_apply", _apply),
            (nn.Module, "load_state_dict", lambda *_, **__: None),
            (nn.RNNBase, "flatten_parameters", lambda *_: None),  # it asks where they lie in memory
            # Layouts of processes are computed with tensors.
            (DeviceMesh, "__init__", _outside(DeviceMesh.__init__)),
            # DTensors ask it for shapes, and it makes whole tensors to find out.
            (ShardingPropagator, METAS, _outside(getattr(ShardingPropagator, METAS))),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))


def as_fake(value: Any, mode: FakeTensorMode) -> Any:
    """Return tensors, however they are nested, without their numbers."""

    def convert(tensor: Tensor) -> Tensor:
        return tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor)

    return tree_map_only(Tensor, convert, value)


@contextmanager
def processes(count: int) -> Iterator[None]:
    """Let this process be the first of so many that don't exist: what it sends goes nowhere."""
    import torch.distributed._tools.fake_collectives  # noqa: F401 - collectives without numbers, for torch 2.10
    from torch.distributed.fsdp._fully_shard import _fsdp_param
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    try:
        with mock.patch.object(_fsdp_param, "_chunk_with_empty", _first_chunk):
            yield
    finally:
        dist.destroy_process_group()


def _first_chunk(tensor: Tensor, count: int, dim: int) -> list[Tensor]:
    """Return the chunk of the first process only; FSDP makes those of all, which takes seconds for hundreds."""
    return [tensor.narrow(dim, 0, -(-tensor.size(dim) // count))]


def _apply(self: nn.Module, function: Any, recurse: bool = True) -> nn.Module:
    """`Module._apply`, which can't exchange fake tensors in place."""
    for module in self.modules() if recurse else [self]:
        for name, parameter in module._parameters.items():
            if parameter is not None and (changed := function(before := parameter.detach())) is not before:
                module._parameters[name] = nn.Parameter(changed, parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = function(buffer)
    return self


def _copy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """`Tensor.__deepcopy__`, which asks where the numbers are."""
    copied = self.detach().clone()
    memo[id(self)] = nn.Parameter(copied, self.requires_grad) if isinstance(self, nn.Parameter) else copied
    return memo[id(self)]


def _outside(function: Any) -> Any:
    """Return a function that computes with real tensors."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return run
