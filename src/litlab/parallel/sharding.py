"""Divide networks among processes: tensor parallelism first, then FSDP2 around it."""

import logging
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrize import is_parametrized
from torch.optim import Adafactor, Optimizer

from litlab.errors import UserError
from litlab.parallel.plan import ParallelPlan, check_weights, matches


def _is_no_gather(record: logging.LogRecord) -> bool:
    return "all_gather" not in map(str, record.args or ())


# torch warns that sums of several meshes may differ between processes. What is gathered for a checkpoint is not summed.
logging.getLogger("torch.distributed.tensor._redistribute").addFilter(_is_no_gather)


def divide_tensors(network: nn.Module, plan: ParallelPlan, mesh: DeviceMesh) -> None:
    """Let the processes of a mesh share each of the layers that a plan names (Shoeybi et al. 2019, arXiv:1909.08053).

    Raises:
        UserError: If the plan names no layers, or the processes can't get equal parts of them.
    """
    kind, size = type(network).__name__, mesh.size()
    if not (plan.columns or plan.rows):
        raise UserError(
            f"trainer.strategy: {kind} has no parallel_plan that says which layers to divide, as tensor_parallel_size "
            "asks for; give it one (docs/scale.md), or leave tensor_parallel_size out"
        )
    styles: dict[str, ParallelStyle] = {}
    for pattern in plan.columns:
        styles |= dict.fromkeys(matches(network, pattern), ColwiseParallel())
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
        _check_parts(f"{kind}.{name} has {features} features", features, size)
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
            _check_parts(f"{kind}.{name}.{attribute} is {number}", number, size)
            try:
                setattr(owner, attribute, number // size)
            except AttributeError as error:
                raise UserError(
                    f"trainer.strategy: {kind}.{name}.{attribute} can't be set; make it a plain attribute"
                ) from error


def _check_parts(what: str, number: int, size: int) -> None:
    if number % size:
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

    options: dict[str, Any] = {
        "mesh": mesh, "mp_policy": policy, "reshard_after_forward": reshard,
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
