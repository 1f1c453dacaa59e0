"""A strategy that shards a model over all processes, and divides its layers among some of them."""

from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Adafactor

from litlab.errors import UserError
from litlab.nn.selection import find_blocks, select_modules
from litlab.parallel.groups import DataGroups
from litlab.parallel.plan import check_weights, networks, plan_of
from litlab.types import PositiveInt


class ShardedStrategy(DataGroups):
    """FSDP2, tensor parallelism, or both: each process holds a part of the model.

    Args:
        tensor_parallel_size: Processes that share each layer of the network's plan; the others
            share the data.
        reshard_after_forward: Whether weights are freed between forward and backward pass and
            gathered again.
        cpu_offload: Whether weights, gradients and optimizer state stay in host memory.
        save_distributed_checkpoint: Whether each process writes its part of a checkpoint, into a
            folder beside it, by litlab's ShardedCheckpointIO.
        async_checkpoint: Whether they do so in the background, from a copy in host memory.
    """

    def __init__(
        self,
        tensor_parallel_size: PositiveInt = 1,
        reshard_after_forward: bool = True,
        cpu_offload: bool = False,
        save_distributed_checkpoint: bool = False,
        async_checkpoint: bool = False,
    ) -> None:
        super().__init__(
            tensor_parallel_size=tensor_parallel_size,
            save_distributed_checkpoint=save_distributed_checkpoint or async_checkpoint,
        )
        self.tensor_parallel_size = tensor_parallel_size
        self.reshard_after_forward = reshard_after_forward
        self.cpu_offload = cpu_offload
        self.async_checkpoint = async_checkpoint

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes // self.tensor_parallel_size
        super().setup_environment()

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            if isinstance(optimizer, Adafactor) or type(optimizer).__module__.startswith("torchao"):
                raise UserError(
                    f"model.optimizer: {type(optimizer).__name__} needs whole weights, which "
                    f"trainer.strategy {type(self).__name__} divides; use another optimizer, or ddp"
                )

    def divide(self, model: nn.Module) -> None:
        parts = networks(model)
        prefixes = tuple(f"{name}." for name in parts)
        for name, _ in model.named_parameters():
            if not name.startswith(prefixes):
                raise UserError(
                    f"trainer.strategy: {type(self).__name__} shards modules, and "
                    f"{type(model).__name__} has a parameter of its own ({name}); put it into a "
                    "module that is called, or use ddp"
                )
        if self._layer_sync is not None:
            self._layer_sync.apply(model)

        data_mesh, layer_mesh = (
            self.device_mesh["data_parallel"],
            self.device_mesh["tensor_parallel"],
        )
        is_sharded = data_mesh.size() > 1 or layer_mesh.size() == 1 or self.cpu_offload
        if is_sharded:
            blocks = [
                f"{name}.{block}"
                for name, network in parts.items()
                for block in find_blocks(network)
            ]
            check_weights(model, [*parts, *blocks])
        for network in parts.values():
            if layer_mesh.size() > 1:
                divide_layers(network, layer_mesh)
            if is_sharded:
                precision = str(self.precision_plugin.precision)
                shard_fully(
                    network, data_mesh, precision, self.cpu_offload, self.reshard_after_forward
                )

    def gathered(self, state: dict[Any, Any]) -> dict[Any, Any]:
        return (
            state
            if self._save_distributed_checkpoint
            else apply_to_collection(state, Tensor, self._gather)
        )

    def _gather(self, tensor: Tensor) -> Tensor:
        """Return a whole tensor on the CPU. Each process must call this, in the same order; the
        first one keeps it.
        """
        tensor = tensor.detach()
        if isinstance(tensor, DTensor):
            tensor = tensor.to(self.root_device).full_tensor()  # pyright: ignore[reportAttributeAccessIssue]
        return tensor.cpu() if self.is_global_zero else torch.empty(0)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        if self._save_distributed_checkpoint:  # by all processes
            self.checkpoint_io.save_checkpoint(checkpoint, filepath, self.async_checkpoint)
        else:
            super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        load_parts = getattr(self.checkpoint_io, "load_parts", None)
        if load_parts is None:
            return super().load_checkpoint(checkpoint_path, weights_only)
        return load_parts(checkpoint_path, self.model, self.optimizers)

    def teardown(self) -> None:
        super().teardown()
        self.checkpoint_io.teardown()  # it waits for what is being written


def divide_layers(network: nn.Module, mesh: DeviceMesh) -> None:
    """Let processes share each layer that the network's plan names (Shoeybi et al. 2019,
    arXiv:1909.08053).

    Raises:
        UserError: If the plan names no layers, or a number of its counts can't be divided.
    """
    plan, kind = plan_of(network), type(network).__name__
    if not (plan.columns or plan.rows):
        raise UserError(
            f"trainer.strategy: {kind} has no parallel_plan that says which layers to divide, as "
            "tensor_parallel_size asks for; give it one (docs/scale.md), or leave "
            "tensor_parallel_size out"
        )

    # Layers
    columns = select_modules(network, plan.columns, f"parallel_plan.columns of {kind}")
    rows = select_modules(network, plan.rows, f"parallel_plan.rows of {kind}")
    styles: Any = dict.fromkeys(columns, ColwiseParallel()) | dict.fromkeys(rows, RowwiseParallel())
    check_weights(network, styles)
    is_trained = {name: parameter.requires_grad for name, parameter in network.named_parameters()}
    parallelize_module(network, mesh, styles)
    for name, parameter in network.named_parameters():
        # Torch 2.10 makes new ones, which are all trained
        parameter.requires_grad_(is_trained[name])

    # Numbers of what is in them
    for pattern in plan.counts:
        path, _, attribute = pattern.rpartition(".")
        for name, owner in select_modules(network, path, f"parallel_plan.counts of {kind}").items():
            number = getattr(owner, attribute)
            if number % mesh.size():
                raise UserError(
                    f"trainer.strategy: {kind}.{name}.{attribute} is {number}, which "
                    f"tensor_parallel_size {mesh.size()} does not divide; change one of them"
                )
            setattr(owner, attribute, number // mesh.size())


def shard_fully(
    network: nn.Module, mesh: DeviceMesh, precision: str, offload: bool, reshard: bool
) -> None:
    """Shard weights, gradients and optimizer state over the processes of a mesh (FSDP2).

    Args:
        network: It is changed block by block, so that no more than one of them is whole on the
            device.
        mesh: The processes.
        precision: The Trainer's: with bf16-mixed, weights are gathered and computed with in
            bfloat16.
        offload: Whether weights, gradients and optimizer state stay in host memory.
        reshard: Whether weights are freed between forward and backward pass and gathered again.
    """
    for parameter in network.parameters():
        if not parameter.is_contiguous():  # such as with channels last
            parameter.data = parameter.detach().contiguous()
    policy = MixedPrecisionPolicy()
    if precision == "bf16-mixed":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    offload_policy = (
        CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if offload else OffloadPolicy()
    )
    options: dict[str, Any] = {"mesh": mesh, "offload_policy": offload_policy}

    # Weights of batch norms have the type of their statistics, which stay as they are.
    norms: list[nn.Module] = []
    if policy.param_dtype is not None:
        norms = [part for part in network.modules() if isinstance(part, _NormBase) and part.affine]
    for norm in norms:
        fully_shard(norm, **options, reshard_after_forward=reshard)
    for block in find_blocks(network).values():
        if block not in norms:
            fully_shard(block, **options, reshard_after_forward=reshard, mp_policy=policy)
    # What is outside of the blocks stays whole until the backward pass, where it is needed next.
    fully_shard(network, **options, reshard_after_forward=False, mp_policy=policy)
