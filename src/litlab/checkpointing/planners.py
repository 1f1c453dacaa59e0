"""DCP's plans to write and read tensors of which each process holds a part, as `Chunks`."""

from math import prod
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list


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
