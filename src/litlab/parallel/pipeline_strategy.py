"""A strategy in which each process holds some of a network's blocks, and micro-batches pass through all of them."""

from collections import ChainMap
from typing import Any

import torch.distributed as dist
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn

from litlab.errors import UserError
from litlab.nn.selection import find_blocks
from litlab.parallel.groups import DataGroups
from litlab.parallel.pipeline import Pipeline
from litlab.parallel.plan import networks
from litlab.types import PositiveInt


class PipelineStrategy(DataGroups):
    """Pipeline parallelism: all processes form one pipeline, and each holds a part of the network's blocks.

    Every process gets the same batches and computes loss, metrics and steps of the whole batch; only the network's call
    is divided, see `Pipeline`. What is not in a block is in every process.

    Args:
        microbatches: Parts of a batch that are under way at once. Of the time, ``(processes - 1) / (microbatches +
            processes - 1)`` is spent waiting.
    """

    def __init__(self, microbatches: PositiveInt = 4) -> None:
        super().__init__(data_parallel_size=1, save_distributed_checkpoint=False)
        self.microbatches = microbatches
        self._own: set[nn.Parameter] = set()  # what this process alone has

    def setup_environment(self) -> None:
        self._tensor_parallel_size = self.num_nodes * self.num_processes  # they have the same samples
        super().setup_environment()

    def divide(self, model: nn.Module) -> None:
        parts = networks(model)
        blocks = {name: len(find_blocks(network)) for name, network in parts.items()}
        if max(blocks.values()) < self.world_size:
            sizes = ", ".join(f"model.{name} has {count}" for name, count in blocks.items())
            raise UserError(
                f"trainer.strategy: a pipeline of {self.world_size} processes needs at least {self.world_size} blocks, "
                f"and {sizes}; add layers or a parallel_plan with more blocks, set fewer trainer.devices, or use fsdp2"
            )
        self._group: Any = dist.new_group(backend="gloo")
        for name, network in parts.items():
            if blocks[name] >= self.world_size:  # a small network beside it is whole in every process
                pipeline = Pipeline(
                    network, self.global_rank, self.world_size, self.microbatches, self.root_device, self._group
                )
                self._own |= pipeline.own_parameters

    def count_holders(self, parameter: Tensor) -> int:
        return 1 if parameter in self._own else self.world_size

    def gathered(self, state: dict[Any, Any]) -> dict[Any, Any]:
        """Return on the first process what all processes have, on the CPU.

        What several have is that of the last one, which alone computes what follows the blocks, with its buffers.
        """
        mine = {name: value for name, value in state.items() if not getattr(value, "is_meta", False)}
        mine = apply_to_collection(mine, Tensor, lambda tensor: tensor.detach().cpu())
        everyone: Any = [None] * self.world_size if self.is_global_zero else None
        dist.gather_object(mine, everyone, group=self._group)
        return {**state, **ChainMap(*reversed(everyone or [mine]))}  # in the order of the model
