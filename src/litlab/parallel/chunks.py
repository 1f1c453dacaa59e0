"""Where the part of a tensor that this process holds lies in the whole one."""

from functools import cache
from itertools import product

import torch
from torch import Size, Tensor
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
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
