"""Which processes have the same samples, which have parts of the model, and work on the tensors
that these have.

Lightning's ModelParallelStrategy leaves dividing to the model's ``configure_model``, counts shared
samples several times, and clips no mix of tensors and DTensors.
"""
# pyright: reportPrivateImportUsage=false

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from lightning.fabric.utilities.device_dtype_mixin import _update_properties
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import (
    DDPStrategy,
    ModelParallelStrategy,
    SingleDeviceStrategy,
    Strategy,
)
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.optim import Optimizer
from torchmetrics import Metric

from litlab.metrics import gather_rows


class DataGroups(ModelParallelStrategy):
    """A strategy that divides a model among a mesh ``(data_parallel, tensor_parallel)`` of
    processes.

    Along its second dimension processes have the same samples. So sums over all processes count
    each sample several times, and metrics are gathered along the first dimension only.

    Checkpoints are those of any other strategy: one file, with whole weights, and the optimizer's
        states by number.
    """

    cpu_offload = False  # whether DTensors stay in host memory
    _divided: nn.Module | None = None  # the model, where a test follows a fit

    @abstractmethod
    def divide(self, model: nn.Module) -> None:
        """Divide a model in host memory, whose tensors are those of the first process."""

    @abstractmethod
    def gathered(self, state: dict[Any, Any]) -> dict[Any, Any]:
        """Return what a checkpoint has of some tensors. All processes call this, with their parts
        of them.
        """

    def count_holders(self, parameter: Tensor) -> int:
        """Return how many processes hold the same part of a parameter."""
        holders = self.world_size
        if isinstance(parameter, DTensor):
            for size, placement in zip(
                parameter.device_mesh.shape, parameter.placements, strict=True
            ):
                holders //= 1 if isinstance(placement, Replicate) else size
        return holders

    @property
    def data_group(self) -> ProcessGroup:
        """The processes that share the samples with this one, one of each set of replicas."""
        return self.device_mesh["data_parallel"].get_group()

    def setup(self, trainer: Trainer) -> None:
        assert self.model is not None
        assert self.accelerator is not None
        self.accelerator.setup(trainer)
        for loop in (
            trainer.fit_loop.epoch_loop.val_loop,
            trainer.validate_loop,
            trainer.test_loop,
            trainer.predict_loop,
        ):
            # The buffers that FSDP2 makes in one could not be trained with later
            loop.inference_mode = False

        if self._divided is not self.model:
            self.model = self.precision_plugin.convert_module(self.model)
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                first = tensor.detach().to(self.root_device)
                torch.distributed.broadcast(first, 0)
                tensor.detach().copy_(first)
            self.divide(self.model)
            self._divided = self.model
        self.model_to_device()
        self._gather_metrics(self.model)

        if trainer.state.fn == "fit":
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()
        plugin: Any = self.precision_plugin
        plugin.clip_grad_by_norm = self._clip_norm
        plugin.clip_grad_by_value = self._clip_value

    def model_to_device(self) -> None:
        assert self.model is not None

        def move(tensor: Tensor) -> Tensor:
            stays = tensor.is_meta or (self.cpu_offload and isinstance(tensor, DTensor))
            return tensor if stays else tensor.to(self.root_device)

        self.model._apply(move)
        _update_properties(self.model, device=self.root_device)

    def _gather_metrics(self, module: nn.Module) -> None:
        # A function is copied with a metric, a group not
        def gather(value: Tensor, group: Any = None) -> list[Tensor]:
            return gather_rows(value, self.data_group)

        for metric in module.modules():
            if isinstance(metric, Metric):
                metric.dist_sync_fn = gather

    def on_validation_start(self) -> None:
        assert self.lightning_module is not None
        share_buffers(self.lightning_module.trainer)  # as DDP does

    on_test_start = on_predict_start = on_validation_start

    def reduce(self, tensor: Tensor | Any, group: Any = None, reduce_op: Any = "mean") -> Tensor:
        # Over samples; Lightning's decisions are sums by ReduceOp
        if group is None and reduce_op == "sum":
            group = self.data_group
        return super().reduce(tensor, group, reduce_op)

    @torch.no_grad()
    def _clip_norm(self, optimizer: Optimizer, most: float) -> None:
        """Scale gradients so that their norm over all processes is at most a number."""
        parameters: list[Any] = [
            p for p in self.precision_plugin.main_params(optimizer) if p.grad is not None
        ]
        gradients = [local_part(parameter.grad) for parameter in parameters]
        square = torch.zeros((), device=self.root_device)
        if gradients:  # a process may have none, but all take part in the sum
            holders = torch.tensor([self.count_holders(parameter) for parameter in parameters])
            square += (
                norms_of(gradients).to(square.device).square() / holders.to(square.device)
            ).sum()
        torch.distributed.all_reduce(square)
        if gradients:
            factor = (most / (square.sqrt() + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(gradients, factor.to(gradients[0].device))  # pyright: ignore[reportPrivateImportUsage]

    def _clip_value(self, optimizer: Optimizer, most: float) -> None:
        parameters = self.precision_plugin.main_params(optimizer)
        # The other way takes no mix with DTensors
        torch.nn.utils.clip_grad_value_(parameters, most, foreach=False)

    # Lightning's ModelParallelStrategy has files and an order of the optimizer's states of its own.
    lightning_restore_optimizer: Any = Strategy.lightning_restore_optimizer
    save_checkpoint = Strategy.save_checkpoint
    load_checkpoint = Strategy.load_checkpoint

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.model is not None
        return self.gathered(self.model.state_dict())

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.model is not None
        mine = self.model.state_dict()
        parts = {
            name: divided_like(mine.get(name), value)
            for name, value in checkpoint["state_dict"].items()
        }
        self.model.load_state_dict(parts, strict=strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        state = optimizer.state_dict()
        return {**state, "state": self.gathered(state["state"])}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [
                parameter for group in optimizer.param_groups for parameter in group["params"]
            ]
            state: dict[int, dict[str, Any]] = {}
            for number, entries in saved["state"].items():
                mine = parameters[number]
                if not mine.is_meta:  # of another stage of a pipeline
                    state[number] = {
                        name: divided_like(mine, value) for name, value in entries.items()
                    }
            optimizer.load_state_dict({**saved, "state": state})


def shards(strategy: Strategy) -> bool:
    """Return whether a process may hold a part of the model only: of its weights, gradients or
    optimizer state.
    """
    return not isinstance(strategy, SingleDeviceStrategy | DDPStrategy)


def data_ranks(trainer: Trainer | None) -> dict[str, Any]:
    """Return the place of this process among those that share the data, as ``rank`` and
    ``world_size``.
    """
    if trainer is None or trainer.world_size == 1:
        return {"rank": 0, "world_size": 1}
    strategy: Any = trainer.strategy
    mine = strategy.distributed_sampler_kwargs
    return {"rank": mine["rank"], "world_size": mine["num_replicas"]}


def share_buffers(trainer: Trainer) -> None:
    """Copy the buffers, such as statistics of batch norm, from the first of the processes that
    share the data.
    """
    if data_ranks(trainer)["world_size"] == 1:
        return
    for buffer in trainer.lightning_module.buffers():
        torch.distributed.broadcast(buffer, group=data_group(trainer), group_src=0)


def data_group(trainer: Trainer) -> Any:
    """Return the group of processes that share the data with this one; None: all."""
    return getattr(trainer.strategy, "data_group", None)


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor as a dense one that shares its memory."""
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local()
    # values() refuses what is not coalesced
    return tensor._values() if tensor.is_sparse else tensor


def norms_of(tensors: list[Tensor]) -> Tensor:
    """Return the L2 norm of each tensor, shape (tensor,), in float32, as float16 would overflow, or
    float64.

    ``torch.nn.utils.get_total_norm`` overflows in float16.
    """
    if not tensors:
        return torch.zeros(0)
    is_double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.stack(
        torch._foreach_norm(tensors, 2, torch.float64 if is_double else torch.float32)
    )


def copy_all(to: list[Tensor], source: list[Tensor]) -> None:
    """Copy tensors into others of the same shapes."""
    if to:
        torch._foreach_copy_(to, source)


def reshard(model: nn.Module) -> None:
    """Divide what FSDP2 keeps whole after a forward pass: changes of whole weights get lost."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def copy_of(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy without a gradient, of another type if one is given; a part stays a part."""
    # `DTensor.from_local` would take it to the mesh's device
    copied = torch.empty_like(tensor.detach(), dtype=dtype)
    local_part(copied).copy_(local_part(tensor.detach()))
    return copied


def divided_like(target: Any, value: Any) -> Any:
    """Return this process's part of a whole tensor, divided as another one is and on its device.

    Of a tensor that another stage of a pipeline has, that is an empty one. What is a part, or has
    another shape, stays as it is. Nothing is communicated.
    """
    if isinstance(value, DTensor) or getattr(target, "shape", None) != getattr(
        value, "shape", None
    ):
        return value
    if isinstance(target, DTensor):
        return distribute_tensor(
            value, target.device_mesh, target.placements, src_data_rank=None
        ).to(target.device)
    return value.to("meta") if isinstance(target, Tensor) and target.is_meta else value
