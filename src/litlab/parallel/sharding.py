"""Divide networks among processes: tensor parallelism first, then FSDP2 around it."""

import logging
from functools import partial
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrize import is_parametrized
from torch.optim import Adafactor, Optimizer

from litlab.errors import UserError
from litlab.parallel.plan import ParallelPlan, check_weights, matches


def _is_no_gather(record: logging.LogRecord) -> bool:
    return "all_gather" not in map(str, record.args or ())


# torch warns that sums of several meshes may differ between processes. What is gathered for a checkpoint is not summed.
logging.getLogger("torch.distributed.tensor._redistribute").addFilter(_is_no_gather)


class FusedColwiseParallel(ParallelStyle):
    """Divide a linear layer that computes several things side by side: each process gets a part of each of them.

    torch's ColwiseParallel would give the queries to one process and the values to another.

    Args:
        parts: How many things.
    """

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters(recurse=False)):
            # FSDP can shard the weight along its inputs then, but a bias that is divided so not at all: it stays whole.
            place: Placement = _StridedShard(0, split_factor=self.parts) if name == "weight" else Replicate()
            divided = distribute_tensor(parameter.data, device_mesh, [place])
            module.register_parameter(name, nn.Parameter(divided, requires_grad=parameter.requires_grad))
        module.forward = partial(self._linear, module, device_mesh)
        return module

    def _linear(self, layer: Any, mesh: DeviceMesh, inputs: Tensor) -> Tensor:
        # On this process's parts as plain tensors: DTensor's own product (torch 2.10) knows no weights divided so.
        bias = None
        if layer.bias is not None:
            pieces = _summed_in_backward(layer.bias.to_local(), mesh).unflatten(0, (self.parts, mesh.size(), -1))
            bias = pieces[:, mesh.get_local_rank()].flatten()
        return functional.linear(_summed_in_backward(inputs, mesh), layer.weight.to_local(), bias)


def _summed_in_backward(tensor: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return a tensor that all processes of a mesh have, and whose gradient is the sum of theirs."""
    return DTensor.from_local(tensor, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])


def divide_tensors(network: nn.Module, plan: ParallelPlan, mesh: DeviceMesh) -> None:
    """Let the processes of a mesh share each of the layers that a plan names (Shoeybi et al. 2019, arXiv:1909.08053).

    Raises:
        UserError: If the plan names no layers, or the processes can't get equal parts of them.
    """
    kind, size = type(network).__name__, mesh.size()
    if not (plan.columns or plan.fused or plan.rows):
        raise UserError(
            f"trainer.strategy: {kind} has no parallel_plan that says which layers to divide, as tensor_parallel_size "
            "asks for; give it one (docs/scale.md), or leave tensor_parallel_size out"
        )
    styles: dict[str, ParallelStyle] = {}
    for pattern in plan.columns:
        styles |= dict.fromkeys(matches(network, pattern), ColwiseParallel())
    for pattern, parts in plan.fused.items():
        styles |= dict.fromkeys(matches(network, pattern), FusedColwiseParallel(parts))
    for pattern in plan.rows:
        styles |= dict.fromkeys(matches(network, pattern), RowwiseParallel())
    for name, style in styles.items():
        layer = network.get_submodule(name)
        plain = {"weight", "bias"} >= {name for name, _ in layer.named_parameters(recurse=False)}
        if not isinstance(layer, nn.Linear) or is_parametrized(layer) or not plain:
            raise UserError(
                f"trainer.strategy: {kind}.{name} is a {type(layer).__name__}, and only plain linear layers can be "
                "divided; change parallel_plan"
            )
        features = layer.in_features if isinstance(style, RowwiseParallel) else layer.out_features
        parts = style.parts if isinstance(style, FusedColwiseParallel) else 1
        what = f"{kind}.{name} has {features} features" + (f" for {parts} layers in one" if parts > 1 else "")
        _check_parts(what, features, parts, size)
    check_weights(network, styles)
    trained = {name: parameter.requires_grad for name, parameter in network.named_parameters()}
    parallelize_module(network, mesh, styles)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(trained[name])  # torch 2.10 makes new ones, which are all trained
    for pattern in plan.counts:
        path, _, attribute = pattern.rpartition(".")
        for name in matches(network, path):
            owner = network.get_submodule(name)
            number = getattr(owner, attribute, None)
            if not isinstance(number, int):
                raise UserError(f"trainer.strategy: {kind}.{name} has no number {attribute}; change parallel_plan")
            _check_parts(f"{kind}.{name}.{attribute} is {number}", number, 1, size)
            try:
                setattr(owner, attribute, number // size)
            except AttributeError as error:
                raise UserError(
                    f"trainer.strategy: {kind}.{name}.{attribute} can't be set; make it a plain attribute"
                ) from error


def _check_parts(what: str, number: int, parts: int, size: int) -> None:
    if number % (parts * size):
        raise UserError(
            f"trainer.strategy: {what}, which tensor_parallel_size {size} does not divide; change one of them"
        )


def shard_fully(
    network: nn.Module, blocks: list[str], mesh: DeviceMesh, policy: MixedPrecisionPolicy, offload: bool, reshard: bool
) -> None:
    """Shard weights, gradients and optimizer state over the processes of a mesh (FSDP2).

    Raises:
        UserError: If a weight can't be sharded.
    """
    if scalar := next((name for name, parameter in network.named_parameters() if not parameter.ndim), None):
        raise UserError(
            f"trainer.strategy: {type(network).__name__}.{scalar} is a parameter of shape (), which FSDP2 can't shard; "
            "give it the shape (1,), or use ddp"
        )
    if scattered := [parameter for parameter in network.parameters() if not parameter.is_contiguous()]:
        rank_zero_info("trainer.strategy: FSDP2 keeps weights in their usual layout, not with channels last.")
        for parameter in scattered:
            parameter.data = parameter.detach().contiguous()

    def place(parameter: nn.Parameter) -> Shard | None:
        if not isinstance(parameter, DTensor) or not any(isinstance(p, _StridedShard) for p in parameter.placements):
            return None
        if parameter.shape[1] % mesh.size():
            raise UserError(
                f"trainer.strategy: a fused layer of {type(network).__name__} has {parameter.shape[1]} inputs, which "
                f"the {mesh.size()} processes that share the data can't divide; change one of them"
            )
        return Shard(1)

    options: dict[str, Any] = {
        "mesh": mesh, "mp_policy": policy, "reshard_after_forward": reshard, "shard_placement_fn": place,
        "offload_policy": CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if offload else OffloadPolicy(),
    }  # fmt: skip
    # Weights of the type of their statistics, which stay as they are. Each is gathered by itself.
    norms = [part for part in network.modules() if isinstance(part, _NormBase) and part.affine]
    if policy.param_dtype is None:
        norms = []
    for norm in norms:
        fully_shard(norm, **{**options, "mp_policy": MixedPrecisionPolicy()})
    for name in blocks:
        if (block := network.get_submodule(name)) not in norms:
            fully_shard(block, **options)
    # What is outside of the blocks stays whole until the backward pass, where it is needed next.
    fully_shard(network, **{**options, "reshard_after_forward": False})


def check_optimizer(optimizer: Optimizer, strategy: str) -> None:
    """Refuse optimizers that can't work with parts of weights.

    Args:
        optimizer: The optimizer.
        strategy: Its strategy, for the message.
    """
    if type(optimizer).__module__.startswith("torchao"):
        raise UserError(
            f"model.optimizer: {type(optimizer).__name__} keeps its state in a form that trainer.strategy {strategy} "
            "can't put together for a checkpoint; use another optimizer, or ddp"
        )
    if isinstance(optimizer, Adafactor):
        raise UserError(
            "model.optimizer: Adafactor needs the rows and columns of whole weights, which trainer.strategy "
            f"{strategy} divides; use another optimizer, or ddp"
        )


def policy_of(precision: str) -> MixedPrecisionPolicy:
    """Return FSDP's policy for a precision of the Trainer: what is gathered and computed in, and reduced in."""
    kind = torch.bfloat16 if precision == "bf16-mixed" else None
    return MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32 if kind else None)


def whole(tensor: DTensor) -> Tensor:
    """Return all of a divided tensor. Every process of its mesh must call this."""
    if not isinstance(tensor.placements[-1], _StridedShard):  # what FSDP makes of other layers is no problem
        return tensor.full_tensor()
    # A fused layer's, dimension by dimension of the mesh: `full_tensor` (torch 2.10) fails.
    mesh, local = tensor.device_mesh, tensor.to_local()
    for name, place in zip(mesh.mesh_dim_names or (), tensor.placements, strict=True):
        if isinstance(place, _StridedShard):
            pieces = DTensor.from_local(local.unflatten(0, (place.split_factor, -1)), mesh[name], [Shard(1)])
            local = pieces.full_tensor().flatten(0, 1)
        elif isinstance(place, Shard):
            size = [tensor.size(n) if n == place.dim else length for n, length in enumerate(local.shape)]
            stride = torch.empty(size, device="meta").stride()
            piece = DTensor.from_local(local, mesh[name], [place], shape=torch.Size(size), stride=stride)
            local = piece.full_tensor()
    return local
