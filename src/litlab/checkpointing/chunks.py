"""Where the part of a tensor that this process holds lies in the whole one, and DCP's plans made from that."""

from functools import cache
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard


class Chunks:
    """A tensor as blocks of the whole one.

    DCP (torch 2.15) takes the part of a DTensor for one block. That of a fused layer, which holds a third of its rows
    from each of three places, is not.

    Args:
        tensor: A DTensor, or a plain tensor, which is whole.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.shape = tensor.shape
        self.divided = isinstance(tensor, DTensor)
        self.local: Tensor = tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()
        self.blocks: list[ChunkStorageMetadata] = []
        self._slices: dict[Size, tuple[slice, ...]] = {}  # in the local part, by a block's place in the whole one
        for block in product(*(_along(tensor, dim) for dim in range(tensor.ndim))):
            offsets = Size(start for start, _ in block)
            self.blocks.append(ChunkStorageMetadata(offsets, Size(here.stop - here.start for _, here in block)))
            self._slices[offsets] = tuple(here for _, here in block)

    def copied(self) -> "Chunks":
        """Return the same with a copy of the numbers in host memory, while training goes on."""
        copy = object.__new__(Chunks)
        copy.__dict__.update(self.__dict__, local=self.local.to("cpu", copy=True))
        return copy

    def at(self, offset: Size | None) -> Tensor:
        """Return a block by its place in the whole tensor: a view."""
        assert offset is not None
        return self.local[self._slices[offset]]


class SavePlanner(DefaultSavePlanner):
    """Plan to write `Chunks`, by their names."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        """List the blocks of this process. What is whole everywhere is the first one's, as buffers may differ."""
        self.plan = SavePlan(
            [
                WriteItem(
                    MetadataIndex(name, block.offsets),
                    WriteItemType.SHARD,
                    tensor_data=TensorWriteData(block, TensorProperties(chunks.local.dtype), chunks.shape),
                )
                for name, chunks in self.state_dict.items()
                for block in chunks.blocks
                if chunks.divided or self.is_coordinator
            ]
        )
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return a block."""
        return self.state_dict[index.fqn].at(index.offset)


class LoadPlanner(DefaultLoadPlanner):
    """Plan to fill `Chunks`, by their names, from whatever blocks were written.

    Raises:
        ValueError: If something is missing, or has another shape.
    """

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Keep what there is to fill."""
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """List what this process reads."""
        assert self.metadata is not None
        items = []
        for name, chunks in self.state_dict.items():
            saved = self.metadata.state_dict_metadata.get(name)
            if not isinstance(saved, TensorStorageMetadata) or saved.size != chunks.shape:
                raise ValueError(f"{name} is not in the shards, or has another shape")
            found = create_read_items_for_chunk_list(name, saved, chunks.blocks)
            if sum(prod(item.lengths) for item in found) != sum(prod(block.sizes) for block in chunks.blocks):
                raise ValueError(f"{name} is not complete in the shards")
            items += found
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Return a block to fill."""
        return self.state_dict[index.fqn].at(index.offset)


def _along(tensor: Tensor, dim: int) -> list[tuple[int, slice]]:
    """Return the runs of which a local part is made along a dimension: where each begins in the whole, and is here."""
    size = tensor.shape[dim]
    if not isinstance(tensor, DTensor):
        return [(0, slice(0, size))]
    return _runs(size, tensor.device_mesh, tuple(_first(place, dim) for place in tensor.placements))


def _first(place: Placement, dim: int) -> Placement:
    """Return how a vector is placed along a dimension of a mesh as one dimension of a tensor is."""
    if isinstance(place, _StridedShard) and place.dim == dim:
        return _StridedShard(0, split_factor=place.split_factor)
    return Shard(0) if isinstance(place, Shard) and place.dim == dim else Replicate()


@cache
def _runs(size: int, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> list[tuple[int, slice]]:
    numbers = distribute_tensor(torch.arange(size), mesh, placements, src_data_rank=None).to_local().tolist()
    begins = [i for i, number in enumerate(numbers) if i == 0 or number != numbers[i - 1] + 1]
    ends = [*begins[1:], len(numbers)]
    return [(numbers[begin], slice(begin, end)) for begin, end in zip(begins, ends, strict=True)] if numbers else []
