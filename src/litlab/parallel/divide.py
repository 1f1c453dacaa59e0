"""How a network is divided: its layers among some processes, all of its weights among others."""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.modules.batchnorm import _NormBase

from litlab.errors import UserError
from litlab.nn.selection import find_blocks, select_modules
from litlab.parallel.plan import check_shared_weights, plan_of


def divide_layers(network: nn.Module, mesh: DeviceMesh) -> None:
    """Let processes share each layer that the network's plan names (Shoeybi et al. 2019,
    arXiv:1909.08053).

    Raises:
        UserError: If the plan names no layers, or a number of its counts can't be divided.
    """
    plan, kind = plan_of(network), type(network).__name__
    if not (plan.columns or plan.rows):
        raise UserError(
            "trainer.strategy: tensor_parallel_size needs a parallel_plan that says which layers "
            f"to divide, and {kind} has none; write one (docs/scale.md), or leave "
            "tensor_parallel_size out"
        )

    # The layers: each process has some outputs of those of `columns`, which are the inputs of those
    # of `rows`
    columns = select_modules(network, plan.columns, f"parallel_plan.columns of {kind}")
    rows = select_modules(network, plan.rows, f"parallel_plan.rows of {kind}")
    styles: Any = dict.fromkeys(columns, ColwiseParallel()) | dict.fromkeys(rows, RowwiseParallel())
    check_shared_weights(network, styles)
    is_trained = {name: parameter.requires_grad for name, parameter in network.named_parameters()}
    parallelize_module(network, mesh, styles)
    for name, parameter in network.named_parameters():
        # torch 2.10 makes new ones, which are all trained
        parameter.requires_grad_(is_trained[name])

    # Numbers of what is in them, such as heads: each process has its share
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
    # FSDP2 (torch 2.15) takes the usual layout alone, not channels last
    for parameter in network.parameters():
        if not parameter.is_contiguous():
            parameter.data = parameter.detach().contiguous()

    # Types and places. Sums of gradients over many processes need the digits of float32.
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
