"""What a step holds in memory and sends, counted while it runs."""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._C._distributed_c10d import _resolve_process_group
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

PARAMETERS, GRADIENTS, OPTIMIZER = "parameters", "gradients", "optimizer state"
ACTIVATIONS, WEIGHTS, TEMPORARY = "activations", "copies of weights", "temporary"
KINDS = (PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, WEIGHTS, TEMPORARY)
HOST = (PARAMETERS, GRADIENTS, OPTIMIZER)  # what CPU offload keeps in host memory
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"

_CAST = torch.ops.aten._to_copy.default
_READ = torch.ops.aten._local_scalar_dense.default


class Ledger(TorchDispatchMode):
    """Counts the bytes of all tensors that are made while it is active, by kind, and what is sent to other processes.

    What a forward pass makes and does not free is an activation; what else a step makes is temporary, until it turns
    out to be a gradient (`own`) or the optimizer's state. Numbers that are read from fake tensors are made up: no
    decision of a training step depends on them, as it would have to wait for the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.alive: Counter[str] = Counter()  # bytes by kind
        self.peaks: dict[str, Counter[str]] = {}  # the same at the peak of each phase
        self.device_peaks: dict[str, Counter[str]] = {}  # the same without what is of `HOST`
        self.sent: Counter[tuple[str, str]] = Counter()  # bytes by (collective, phase)
        self.gradients_of: Sequence[Tensor] = []  # parameters whose gradients may be replaced without a hook
        self._held: dict[int, tuple[Any, int, str]] = {}  # by storage: weak reference, bytes, kind

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(not issubclass(kind, FakeTensor) for kind in types):
            return NotImplemented  # a DTensor or the like is made of others, which come here next
        if func is _READ and isinstance(args[0], FakeTensor) and args[0].constant is None:
            return True if args[0].dtype == torch.bool else 0.5 if args[0].is_floating_point() else 1
        if "c10d" in func.namespace:
            self._communicate(func, args)
        result = func(*args, **(kwargs or {}))
        is_cast = func is _CAST and self.kind_of(args[0]) == PARAMETERS
        for tensor in tree_iter(result):
            if isinstance(tensor, Tensor):
                self._enter(tensor, WEIGHTS if is_cast else ACTIVATIONS if self.phase == FORWARD else TEMPORARY)
        return result

    def own(self, tensors: Iterable[Tensor], kind: str) -> int:
        """Say of which kind tensors are; returns their bytes, each storage once."""
        storages = {}
        for tensor in tensors:
            for part in local_parts(tensor):
                self._enter(part, kind)
                storages[_key(part)] = part.untyped_storage()
        for key, storage in storages.items():
            self._change(key, storage, kind)
        return sum(self._held[key][1] for key in storages)

    def own_gradients(self) -> int:
        """Find the gradients of the parameters; returns their bytes."""
        return self.own([p.grad for p in self.gradients_of if p.grad is not None], GRADIENTS)

    def kind_of(self, tensor: Tensor) -> str:
        """Return of which kind a tensor is; empty if it was never seen."""
        return self._held.get(_key(tensor), (None, 0, ""))[2]

    @contextmanager
    def resizing(self) -> Iterator[None]:
        """Count storages that are resized in place: FSDP frees and gathers weights so."""
        resize = torch.UntypedStorage.resize_

        def counted(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize(storage, size)
            if storage._cdata in self._held:
                self._change(storage._cdata, storage, WEIGHTS)
            return result

        with mock.patch.object(torch.UntypedStorage, "resize_", counted):
            yield

    def _enter(self, tensor: Tensor, kind: str) -> None:
        key = _key(tensor)
        if key in self._held:
            return
        storage = tensor.untyped_storage()
        self._held[key] = weakref.ref(storage, lambda _: self._leave(key)), storage.nbytes(), kind
        self._add(kind, storage.nbytes())

    def _leave(self, key: int) -> None:
        _, size, kind = self._held.pop(key)
        self.alive[kind] -= size

    def _change(self, key: int, storage: torch.UntypedStorage, kind: str) -> None:
        reference, size, before = self._held[key]
        self.alive[before] -= size
        self._held[key] = reference, storage.nbytes(), kind
        self._add(kind, storage.nbytes())

    def _add(self, kind: str, size: int) -> None:
        self.alive[kind] += size
        total = self.alive.total()
        if self.phase and total > self.peaks.get(self.phase, Counter()).total():
            self.peaks[self.phase] = self.alive.copy()
        on_device = total - sum(self.alive[name] for name in HOST)
        if self.phase and on_device > self.device_peaks.get(self.phase, Counter()).total():
            self.device_peaks[self.phase] = Counter({k: v for k, v in self.alive.items() if k not in HOST})

    def _communicate(self, func: Any, args: Any) -> None:
        """Count what this process sends, by the ring algorithms of NCCL and gloo."""
        name = func.overloadpacket.__name__.strip("_")
        if name == "wait_tensor" or not self.phase:
            return
        if self.phase == BACKWARD:
            self.own_gradients()
        tensors = [tensor for tensor in tree_iter(args[:2]) if isinstance(tensor, Tensor)]
        size = max(tensor.numel() * tensor.element_size() for tensor in tensors)
        if "allgather" in name:
            share = 1 - tensors[-1].numel() / tensors[0].numel()
            self.sent["all-gather", self.phase] += round(share * size)
        elif "reduce_scatter_base" in name:
            share = 1 - tensors[0].numel() / tensors[-1].numel()
            self.sent["reduce-scatter", self.phase] += round(share * size)
        elif "all_gather" in name:
            self.sent["all-gather", self.phase] += size * (args[1] - 1)
        elif "reduce_scatter" in name:
            self.sent["reduce-scatter", self.phase] += round(size * (1 - 1 / args[2]))
        elif "all_reduce" in name or "allreduce" in name:
            group = _resolve_process_group(args[2]) if isinstance(args[2], str) else None
            ranks = group.size() if group is not None else torch.distributed.get_world_size()
            self.sent["all-reduce", self.phase] += round(2 * size * (1 - 1 / ranks))
        else:
            self.sent[name, self.phase] += size


def local_parts(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the plain tensors that one is made of, on this process."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()  # pyright: ignore[reportAttributeAccessIssue]
        for part in (getattr(tensor, name) for name in names):
            if isinstance(part, Tensor):  # a DTensor names its mesh, too
                yield from local_parts(part)
    else:
        yield tensor


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors on this process."""
    return sum(part.numel() * part.element_size() for tensor in tensors for part in local_parts(tensor))


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
